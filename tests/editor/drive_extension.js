// Runs the packed extension outside of VS Code: what it needs of the editor is played by the least that it asks for.
// Usage: node drive_extension.js EXTENSION PROGRAM PYTHON. Prints what is reported of the program, as JSON.
"use strict";

const fs = require("fs");
const Module = require("module");
const path = require("path");

const [extension, program, python] = process.argv.slice(2);
const nothing = { dispose() {} };

/** Stands for whatever is not spelled out below: a class, a function, an object of such. */
function anything(name) {
  const stand = class {
    constructor(...args) {
      Object.assign(this, { args });
    }
    dispose() {}
  };
  return new Proxy(stand, {
    get(target, key) {
      if (key in target || typeof key === "symbol") return target[key];
      if (/^(on[A-Z]|register|create|set)/.test(key)) return () => nothing;
      return key;
    },
    apply: () => nothing,
  });
}

class Position {
  constructor(line, character) {
    Object.assign(this, { line, character });
  }
}
class Range {
  constructor(a, b, c, d) {
    [this.start, this.end] = c === undefined ? [a, b] : [new Position(a, b), new Position(c, d)];
  }
}
class Diagnostic {
  constructor(range, message, severity) {
    Object.assign(this, { range, message, severity });
  }
}
class EventEmitter {
  constructor() {
    this.heard = [];
    this.event = (listener) => (this.heard.push(listener), nothing);
  }
  fire(what) {
    for (const listener of this.heard) listener(what);
  }
  dispose() {}
}
class CancellationTokenSource {
  constructor() {
    this.token = { isCancellationRequested: false, onCancellationRequested: () => nothing };
  }
  cancel() {}
  dispose() {}
}
const uri = (file) => ({ scheme: "file", fsPath: file, path: file, toString: () => `file://${file}`, with: () => uri(file) });
const text = fs.readFileSync(program, "utf8");
const document = {
  uri: uri(program), fileName: program, languageId: "difflang", version: 1, isClosed: false, getText: () => text,
};
const settings = { command: [python, "-m", "difflang"] };
const configuration = { get: (key, other) => settings[key] ?? other, has: () => false, inspect: () => undefined };
const heard = (line) => process.stderr.write(`${line}\n`);
const output = { append: heard, appendLine: heard, info: heard, warn: heard, error: heard, show() {}, dispose() {} };

function told(diagnostics) {
  const range = ({ start, end }) => [start.line, start.character, end.line, end.character];
  const reports = diagnostics.map((d) => [d.code?.value ?? d.code, d.message, range(d.range)]);
  process.stdout.write(JSON.stringify(reports), () => process.exit(0));
}
const collection = {
  set: (_, diagnostics) => diagnostics && diagnostics.length && told(diagnostics),
  delete() {}, clear() {}, forEach() {}, has: () => false, dispose() {},
};
/** A part of the editor of which only what is `known` does something: nobody else is heard, nothing else is there. */
const part = (known) => new Proxy(known, {
  get(target, key) {
    if (key in target || typeof key === "symbol") return target[key];
    return /^(on[A-Z]|register|create|set)/.test(key) ? () => nothing : undefined;
  },
});
const vscode = new Proxy({
  Position, Range, Diagnostic, EventEmitter, CancellationTokenSource,
  Uri: { file: uri, parse: (spelled) => uri(spelled.replace("file://", "")) },
  version: "1.99.0",
  env: part({ appName: "driver", language: "en" }),
  languages: part({
    createDiagnosticCollection: () => collection,
    match: () => 10,
  }),
  window: part({
    createOutputChannel: () => output, visibleTextEditors: [], activeTextEditor: undefined, terminals: [],
    setStatusBarMessage: (message) => process.stderr.write(`${message}\n`),
    showErrorMessage: async (message) => process.stderr.write(`${message}\n`), tabGroups: part({ all: [] }),
  }),
  workspace: part({
    workspaceFolders: undefined, textDocuments: [document], notebookDocuments: [],
    getConfiguration: () => configuration, getWorkspaceFolder: () => undefined,
    createFileSystemWatcher: () => part({}),
  }),
  commands: part({}), tasks: part({}), extensions: { getExtension: () => undefined },
}, { get: (target, key) => (key in target ? target[key] : anything(key)) });

const load = Module._load;
Module._load = function (name, ...rest) {
  return name === "vscode" ? vscode : load.call(this, name, ...rest);
};
setTimeout(() => process.exit(3), 60000);
require(path.resolve(extension)).activate({ subscriptions: [] }).catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
