// A program as VS Code colours it, as a piece of HTML: its tokenizer, our grammar, its own dark theme.
// Usage: node code.mjs MODULES GRAMMAR < PROGRAM
import fs from "fs";
import path from "path";
import { pathToFileURL } from "url";

const [modules, grammar] = process.argv.slice(2);
const { createHighlighter } = await import(pathToFileURL(path.join(modules, "shiki", "dist", "index.mjs")));
const language = { ...JSON.parse(fs.readFileSync(grammar, "utf-8")), name: "difflang" };
const highlighter = await createHighlighter({ themes: ["dark-plus"], langs: [language] });
process.stdout.write(highlighter.codeToHtml(fs.readFileSync(0, "utf-8"), { lang: "difflang", theme: "dark-plus" }));
