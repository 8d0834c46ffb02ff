// Builds the view: node build.js [FOLDER] [--unsafe]. With --unsafe nothing is sanitised: the attack tests
// show with it that their payloads would work.
import { build } from "esbuild"
import { mkdir } from "node:fs/promises"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const here = dirname(fileURLToPath(import.meta.url))
const folder = process.argv.slice(2).find((word) => !word.startsWith("--"))
const out = folder ?? join(here, "..", "agentmagic", "widgets", "static")

await mkdir(out, { recursive: true })
await build({
  absWorkingDir: here,
  entryPoints: { view: "src/index.js" },
  outdir: out,
  bundle: true,
  format: "esm",
  target: ["chrome114", "firefox115", "safari16.4"],
  minify: true,
  legalComments: "none",
  banner: { js: "/* agentmagic's view, built from js/; licences of what is in it: LICENSES.md beside this file */" },
  define: { SANITISE: String(!process.argv.includes("--unsafe")) },
  logLevel: "warning",
})
await build({
  absWorkingDir: here,
  entryPoints: { view: "src/view.css" },
  outdir: out,
  minify: true,
  target: ["chrome114", "firefox115", "safari16.4"],
  logLevel: "warning",
})
