// Reads [[name, text], …] as JSON and writes {name: [[scopes of each token, start, end], …] of each line}.
// Arguments: the folder of the node modules, the grammar.
const fs = require("fs");
const path = require("path");
const [modules, grammarPath] = process.argv.slice(2);
const load = (name) => require(path.join(modules, name));
const oniguruma = load("vscode-oniguruma");
const { Registry, INITIAL, parseRawGrammar } = load("vscode-textmate");

const main = async () => {
  const wasm = fs.readFileSync(path.join(modules, "vscode-oniguruma", "release", "onig.wasm"));
  await oniguruma.loadWASM(wasm.buffer.slice(wasm.byteOffset, wasm.byteOffset + wasm.byteLength));
  const registry = new Registry({
    onigLib: Promise.resolve({
      createOnigScanner: (patterns) => new oniguruma.OnigScanner(patterns),
      createOnigString: (text) => new oniguruma.OnigString(text),
    }),
    loadGrammar: async () => parseRawGrammar(fs.readFileSync(grammarPath, "utf-8"), grammarPath),
  });
  const grammar = await registry.loadGrammar("source.difflang");
  const found = {};
  for (const [name, text] of JSON.parse(fs.readFileSync(0, "utf-8"))) {
    let stack = INITIAL;
    found[name] = text.split("\n").map((line) => {
      const { tokens, ruleStack } = grammar.tokenizeLine(line, stack);
      stack = ruleStack;
      return tokens.map((token) => [token.scopes, token.startIndex, token.endIndex]);
    });
  }
  process.stdout.write(JSON.stringify(found));
};

main();
