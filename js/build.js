// Builds the view: node build.js [FOLDER] [--unsafe]. With --unsafe nothing is sanitised: the attack tests
// show with it that their payloads would work.
import { build } from "esbuild"
import { mkdir, readdir, readFile, writeFile } from "node:fs/promises"
import { dirname, join } from "node:path"
import { fileURLToPath } from "node:url"

const here = dirname(fileURLToPath(import.meta.url))
const folder = process.argv.slice(2).find((word) => !word.startsWith("--"))
const out = folder ?? join(here, "..", "agentmagic", "widgets", "static")

/** Writes down the licences of the packages that are in the bundle. @param {import("esbuild").Metafile} metafile */
async function writeLicences({ inputs }) {
  const names = Object.keys(inputs).flatMap((path) => /^node_modules\/((?:@[^/]+\/)?[^/]+)\//.exec(path)?.[1] ?? [])
  const parts = ["# Licences of what is built into view.js\n"]
  for (const name of [...new Set(names)].sort()) {
    const folder = join(here, "node_modules", name)
    const { version, license } = JSON.parse(await readFile(join(folder, "package.json"), "utf8"))
    const file = (await readdir(folder)).filter((path) => /^licen[cs]e(-mit)?(\.(md|txt))?$/i.test(path))[0] ?? "LICENSE"
    const text = (await readFile(join(folder, file), "utf8")).replaceAll("\r", "").trim()
    parts.push(`## ${name} ${version}, ${license}\n\n\`\`\`\n${text}\n\`\`\`\n`)
  }
  await writeFile(join(out, "LICENSES.md"), parts.join("\n"))
}

await mkdir(out, { recursive: true })
const { metafile } = await build({
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
  metafile: true,
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
const elsewhere = Object.values(metafile.outputs).flatMap((output) => output.imports)
if (elsewhere.length) throw new Error(`not bundled: ${elsewhere.map(({ path }) => path)}`)
await writeLicences(metafile)
