// Runs inside.py in Pyodide: node run.mjs FOLDER CHECKOUT REQUESTS ANSWERS LESSON...
// FOLDER is what prepare.py filled; REQUESTS and ANSWERS are the pipes to the sanitiser.
import { closeSync, openSync, readSync, writeSync } from "node:fs";
import { pathToFileURL } from "node:url";

const [folder, checkout, requests, answers, ...lessons] = process.argv.slice(2);
const { loadPyodide } = await import(pathToFileURL(`${folder}/node_modules/pyodide/pyodide.mjs`));
const begun = performance.now();
const pyodide = await loadPyodide({ env: { HOME: "/home/pyodide", AGENTMAGIC_REPLAY: "replay" } });
for (const [at, root] of [["/site", `${folder}/site`], ["/checkout", checkout]]) {
    pyodide.FS.mkdirTree(at);
    pyodide.FS.mount(pyodide.FS.filesystems.NODEFS, { root }, at);
}

// One line of JSON to the sanitiser, and one back. Pyodide waits meanwhile, as it does for a compiled package.
const to = openSync(requests, "w");
const from = openSync(answers, "r");
const piece = Buffer.alloc(65536);
const sanitise = (line) => {
    writeSync(to, `${line}\n`);
    let answer = Buffer.alloc(0);
    while (!answer.includes(10)) {
        answer = Buffer.concat([answer, piece.subarray(0, readSync(from, piece))]);
    }
    return answer.toString();
};

pyodide.registerJsModule("host", { sanitise, lessons, started: performance.now() - begun });
try {
    const report = await pyodide.runPythonAsync(`
import sys
sys.path[:0] = ["/checkout", "/site"]
from tests.pyodide import inside
await inside.main()
`);
    process.stdout.write(`${report}\n`);
} finally {
    closeSync(to);
}
process.exit(0);
