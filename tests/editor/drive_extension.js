// Runs the packed extension outside of VS Code: what it needs of the editor is played by the least that it asks for.
// Usage: node drive_extension.js EXTENSION PROGRAM SETTINGS [COMMAND LINE]. SETTINGS are JSON. Prints as JSON what is
// reported of the program, or with a command what that changes in the program, the cursor being in a line of it; else
// what people are told, with the lines of the output.
"use strict";

const fs = require("fs");
const Module = require("module");
const path = require("path");

const [extension, program, settings, command, line] = process.argv.slice(2);
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
class TextEdit {
  constructor(range, newText) {
    Object.assign(this, { range, newText });
  }
}
class WorkspaceEdit {
  set(_, edits) {
    this.edits = edits;
  }
}
class CodeAction {
  constructor(title, kind) {
    Object.assign(this, { title, kind });
  }
}
class CodeActionKind {
  constructor(value) {
    this.value = value;
  }
  append(part) {
    return new CodeActionKind(this.value ? `${this.value}.${part}` : part);
  }
}
CodeActionKind.Empty = new CodeActionKind("");
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
const chosen = JSON.parse(settings);
const configuration = { get: (key, other) => chosen[key] ?? other, has: () => false, inspect: () => undefined };
const log = [];
const heard = (line) => log.push(line) && process.stderr.write(`${line}\n`);
const output = { append: heard, appendLine: heard, info: heard, warn: heard, error: heard, show() {}, dispose() {} };

const spelled = ({ start, end }) => [start.line, start.character, end.line, end.character];
const print = (what) => process.stdout.write(JSON.stringify(what), () => process.exit(0));

function told(diagnostics) {
  print(diagnostics.map((d) => [d.code?.value ?? d.code, d.message, spelled(d.range)]));
}
const collection = {
  set: (_, diagnostics) => !command && diagnostics && diagnostics.length && told(diagnostics),
  delete() {}, clear() {}, forEach() {}, has: () => false, dispose() {},
};
/** A part of the editor of which only what is `known` does something: nobody else is heard, nothing else is there. */
const part = (known) => new Proxy(known, {
  get(target, key) {
    if (key in target || typeof key === "symbol") return target[key];
    return /^(on[A-Z]|register|create|set)/.test(key) ? () => nothing : undefined;
  },
});
const commands = new Map();
const offers = []; // who offers actions in code
const pressed = (name, ...args) => {
  if (name !== "vscode.executeCodeActionProvider") return commands.get(name)(...args);
  const context = { diagnostics: [], only: new CodeActionKind(args[2]), triggerKind: 1 };
  const { token } = new CancellationTokenSource();
  return Promise.all(offers.map((each) => each.provideCodeActions(document, args[1], context, token))).then((f) => f.flat());
};
const said = async (message) => print([message, ...log]);
const folder = { uri: uri(path.dirname(program)), name: "folder", index: 0 };
const vscode = new Proxy({
  Position, Range, Diagnostic, EventEmitter, CancellationTokenSource, TextEdit, WorkspaceEdit, CodeAction, CodeActionKind,
  Uri: { file: uri, parse: (spelled) => uri(spelled.replace("file://", "")) },
  version: "1.99.0",
  env: part({ appName: "driver", language: "en" }),
  languages: part({
    createDiagnosticCollection: () => collection,
    match: () => 10,
    registerCodeActionsProvider: (_, provider) => (offers.push(provider), nothing),
  }),
  window: part({
    createOutputChannel: () => output, visibleTextEditors: [], terminals: [], tabGroups: part({ all: [] }),
    activeTextEditor: command ? { document, selection: new Range(+line, 0, +line, 0) } : undefined,
    setStatusBarMessage: said, showErrorMessage: said, showInformationMessage: said,
    withProgress: (_, work) => work(),
  }),
  workspace: part({
    workspaceFolders: [folder], textDocuments: [document], notebookDocuments: [],
    getConfiguration: () => configuration, getWorkspaceFolder: () => folder,
    createFileSystemWatcher: () => part({}),
    applyEdit: async ({ edits }) => (print(edits.map((e) => [spelled(e.range), e.newText])), true),
  }),
  commands: part({
    registerCommand: (name, work) => (commands.set(name, work), nothing),
    executeCommand: async (...args) => pressed(...args),
  }),
  tasks: part({}), extensions: { getExtension: () => undefined },
}, { get: (target, key) => (key in target ? target[key] : anything(key)) });

const load = Module._load;
Module._load = function (name, ...rest) {
  return name === "vscode" ? vscode : load.call(this, name, ...rest);
};
setTimeout(() => process.exit(3), 110000);
const started = require(path.resolve(extension)).activate({ subscriptions: [] });
started.then(() => command && pressed(command)).catch((error) => {
  process.stderr.write(`${error.stack}\n`);
  process.exit(1);
});
