// Compresses what Vite has built, and notes a number of the sources, which `cargo xtask check` compares with what they are.
import { readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { gzipSync } from "node:zlib";
import config from "./vite.config.mjs";

const out = config.build.outDir;
for (const name of ["index.html", "console.js", "console.css"]) {
  const packed = gzipSync(readFileSync(join(out, name)), { level: 9 });
  packed[9] = 255; // the operating system, which is not to matter
  writeFileSync(join(out, `${name}.gz`), packed);
}

// The 64-bit FNV-1a of each file's path, a zero, its bytes, and a zero, in the order of the paths.
function walk(folder) {
  return readdirSync(folder, { withFileTypes: true }).flatMap((entry) => {
    const path = `${folder}/${entry.name}`;
    return entry.isDirectory() ? walk(path) : [path];
  });
}
const settings = ["index.html", "package-lock.json", "package.json", "pack.mjs", "tsconfig.json", "vite.config.mjs"];
let number = 0xcbf29ce484222325n;
const add = (byte) => (number = BigInt.asUintN(64, (number ^ BigInt(byte)) * 0x100000001b3n));
for (const path of [...settings, ...walk("src")].sort()) {
  for (const bytes of [Buffer.from(path), readFileSync(path)]) {
    bytes.forEach(add);
    add(0);
  }
}
writeFileSync(join(out, "sources.txt"), `${number.toString(16).padStart(16, "0")}\n`);
