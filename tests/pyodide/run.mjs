// Runs inside.py in Pyodide: node run.mjs FOLDER CHECKOUT PLACE NOTEBOOK...
// FOLDER is what prepare.py filled. PLACE has `requests` and `answers`, the pipes to the sanitiser, and gets
// `report.json`. All paths are absolute.
import { closeSync, openSync, readFileSync, readSync, writeFileSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, checkout, place, ...notebooks] = process.argv.slice(2);
const library = `${folder}/node_modules/pyodide`;
const { loadPyodide } = await import(pathToFileURL(`${library}/pyodide.mjs`));
const begun = performance.now();
// A lock without packages: else a cell that imports one would have it fetched from the distribution, on the network.
const lock = { ...JSON.parse(readFileSync(`${library}/pyodide-lock.json`)), packages: {} };
const pyodide = await loadPyodide({
    env: { HOME: "/home/pyodide" },
    lockFileContents: JSON.stringify(lock),
    packageBaseUrl: library,
});
pyodide.FS.mkdir("/host");
pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root: "/" }, "/host");

// One line of JSON to the sanitiser, and one back. Pyodide waits meanwhile, as it does for a compiled package.
const to = openSync(`${place}/requests`, "w");
const from = openSync(`${place}/answers`, "r");
const piece = Buffer.alloc(65536);
const sanitise = (line) => {
    writeSync(to, `${line}\n`);
    let answer = Buffer.alloc(0);
    while (!answer.includes(10)) {
        answer = Buffer.concat([answer, piece.subarray(0, readSync(from, piece))]);
    }
    return answer.toString();
};

pyodide.registerJsModule("host", { sanitise, notebooks, started: performance.now() - begun });
const paths = JSON.stringify([`/host${checkout}`, `/host${folder}/site`]);
const report = await pyodide.runPythonAsync(`
import sys
sys.path[:0] = ${paths}
from tests.pyodide import inside
await inside.main()
`);
closeSync(to);
writeFileSync(`${place}/report.json`, report);
process.exit(0);
