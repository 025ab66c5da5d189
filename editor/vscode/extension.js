// Commands that run difflang on the file in front, as tasks: their output stands in the terminal, their reports among
// the problems. Nothing runs by itself.
"use strict";

const fs = require("fs");
const path = require("path");
const vscode = require("vscode");

const VERBS = ["run", "check", "test"];

/** The command line of difflang: the setting, else the workspace's `.venv`, else the PATH. */
function commandFor(folder) {
  const chosen = vscode.workspace.getConfiguration("difflang").get("command", []);
  if (chosen.length > 0) return chosen;
  const place = process.platform === "win32" ? ["Scripts", "difflang.exe"] : ["bin", "difflang"];
  const own = folder && path.join(folder.uri.fsPath, ".venv", ...place);
  return [own && fs.existsSync(own) ? own : "difflang"];
}

/** A task that does `verb` with a file; its errors go among the problems. */
function taskFor(verb, uri, definition = { type: "difflang", verb, file: uri.fsPath }) {
  const folder = vscode.workspace.getWorkspaceFolder(uri);
  const [program, ...first] = commandFor(folder);
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
  await vscode.tasks.executeTask(taskFor(verb, editor.document.uri));
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

exports.activate = (context) => {
  for (const verb of VERBS) {
    context.subscriptions.push(vscode.commands.registerCommand(`difflang.${verb}`, () => start(verb)));
  }
  context.subscriptions.push(vscode.tasks.registerTaskProvider("difflang", provider));
};
