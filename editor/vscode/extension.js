// Commands that run difflang on the file in front, as tasks: their output stands in the terminal, their reports among
// the problems. Beside it the client of the language server. No program runs by itself.
"use strict";

const childProcess = require("child_process");
const fs = require("fs");
const path = require("path");
const vscode = require("vscode");

const VERBS = ["run", "check", "test"];
const PATIENCE = 60000; // milliseconds: the first start of a fresh installation compiles it

let client; // of the language server, while there is one
let channel; // where it writes what nobody need read

/** The difflang in a folder of programs, if it is there. */
function inside(folder) {
  const name = path.join(folder, process.platform === "win32" ? "difflang.exe" : "difflang");
  return fs.existsSync(name) ? name : undefined;
}

/** The difflang beside the Python that was chosen for the workspace, if the Python extension is there. */
async function besideInterpreter(folder) {
  const python = vscode.extensions.getExtension("ms-python.python");
  if (!python) return undefined;
  const api = python.isActive ? python.exports : await python.activate();
  const chosen = api?.environments?.getActiveEnvironmentPath?.(folder?.uri)?.path;
  return chosen ? inside(path.dirname(chosen)) : undefined;
}

/** The command line of difflang: the setting, the workspace's `.venv`, its chosen Python, else the PATH. */
async function commandFor(folder) {
  const chosen = vscode.workspace.getConfiguration("difflang").get("command", []);
  if (chosen.length > 0) return chosen;
  const bin = process.platform === "win32" ? "Scripts" : "bin";
  const own = folder && inside(path.join(folder.uri.fsPath, ".venv", bin));
  return [own || (await besideInterpreter(folder).catch(() => undefined)) || "difflang"];
}

// ---- Tasks

/** A task that does `verb` with a file; its errors go among the problems. */
async function taskFor(verb, uri, definition = { type: "difflang", verb, file: uri.fsPath }) {
  const folder = vscode.workspace.getWorkspaceFolder(uri);
  const [program, ...first] = await commandFor(folder);
  const options = { cwd: folder ? folder.uri.fsPath : path.dirname(uri.fsPath), env: { NO_COLOR: "1" } };
  const execution = new vscode.ProcessExecution(program, [...first, verb, uri.fsPath], options);
  const scope = folder || vscode.TaskScope.Workspace;
  const task = new vscode.Task(definition, scope, `${verb} ${path.basename(uri.fsPath)}`, "difflang", execution, ["$difflang"]);
  task.presentationOptions = { clear: true, reveal: vscode.TaskRevealKind.Always, showReuseMessage: false };
  return task;
}

/** Saves the file in front and starts the task. */
async function start(verb) {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.languageId !== "difflang") return;
  if (editor.document.isUntitled || !(await editor.document.save() || !editor.document.isDirty)) {
    vscode.window.showInformationMessage("difflang: save the file first");
    return;
  }
  await vscode.tasks.executeTask(await taskFor(verb, editor.document.uri));
}

/** Has the server write the gradient of the function around the cursor below it. */
async function derive() {
  const editor = vscode.window.activeTextEditor;
  if (!editor || editor.document.languageId !== "difflang") return;
  const ask = ["vscode.executeCodeActionProvider", editor.document.uri, editor.selection, "refactor.rewrite"];
  const offers = client ? await vscode.commands.executeCommand(...ask) : [];
  const offer = offers?.find((each) => each.command?.command === "difflang.derive");
  if (!offer) {
    const why = client ? "there is no function with a gradient at the cursor" : "this needs the language server";
    vscode.window.showInformationMessage(`difflang: ${why}`);
    return;
  }
  const shown = { location: vscode.ProgressLocation.Window, title: "difflang: deriving" };
  const { command, arguments: args } = offer.command;
  await vscode.window.withProgress(shown, () => vscode.commands.executeCommand(command, ...args));
}

/** Tasks of `tasks.json` that name a verb and a file. */
const provider = {
  provideTasks: () => [],
  resolveTask: (task) => {
    const { verb, file } = task.definition;
    if (!VERBS.includes(verb) || !file) return undefined;
    const folder = typeof task.scope === "object" ? task.scope.uri.fsPath : "";
    return taskFor(verb, vscode.Uri.file(path.resolve(folder, file)), task.definition);
  },
};

// ---- The language server

/** Why a command line starts no server; empty if it does. */
function whyNot([program, ...first]) {
  return new Promise((resolve) => {
    childProcess.execFile(program, [...first, "lsp", "--check"], { timeout: PATIENCE }, (error, _, said) => {
      if (!error) return resolve("");
      resolve(error.code === "ENOENT" ? `there is no ${program}: pip install 'difflang[lsp]'` : said.trim() || error.message);
    });
  });
}

/** Starts the server, if there is one. If not, that is said once, and where nobody is disturbed. */
async function serve() {
  if (!vscode.workspace.getConfiguration("difflang").get("languageServer", true)) return;
  const command = await commandFor(vscode.workspace.workspaceFolders?.[0]);
  const reason = await whyNot(command);
  if (reason) {
    channel.appendLine(`no language server: ${reason}`);
    vscode.window.setStatusBarMessage("difflang: colours only, see the output of difflang", 10000);
    return;
  }
  const { LanguageClient, RevealOutputChannelOn, TransportKind } = require("vscode-languageclient/node");
  const [program, ...first] = command;
  const run = { command: program, args: [...first, "lsp"], transport: TransportKind.stdio };
  client = new LanguageClient("difflang", "difflang", { run, debug: run }, {
    documentSelector: [{ language: "difflang" }],
    outputChannel: channel,
    revealOutputChannelOn: RevealOutputChannelOn.Never,
    synchronize: { fileEvents: vscode.workspace.createFileSystemWatcher("**/*.dfl") },
  });
  await client.start();
}

/** Ends the server, if there is one. */
async function stop() {
  const old = client;
  client = undefined;
  if (old) await old.stop();
}

exports.activate = async (context) => {
  for (const verb of VERBS) {
    context.subscriptions.push(vscode.commands.registerCommand(`difflang.${verb}`, () => start(verb)));
  }
  context.subscriptions.push(vscode.commands.registerCommand("difflang.gradient", derive));
  context.subscriptions.push(vscode.tasks.registerTaskProvider("difflang", provider));
  channel = vscode.window.createOutputChannel("difflang");
  const again = () => stop().then(serve);
  context.subscriptions.push(channel, vscode.commands.registerCommand("difflang.restart", again));
  context.subscriptions.push(
    vscode.workspace.onDidChangeConfiguration((change) => {
      if (change.affectsConfiguration("difflang")) return again();
    }),
  );
  await serve();
};

exports.deactivate = stop;
