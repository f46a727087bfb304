// Three files with names that stay, into the crate that embeds them; pack.mjs compresses them and notes what they were built from.
export default {
  base: "./",
  esbuild: { jsx: "automatic", jsxImportSource: "preact", legalComments: "none" },
  build: {
    outDir: process.env.OUT ?? "../crates/server/console",
    emptyOutDir: true,
    target: "es2022",
    modulePreload: { polyfill: false },
    cssCodeSplit: false,
    rollupOptions: {
      output: { entryFileNames: "console.js", assetFileNames: "console[extname]", inlineDynamicImports: true },
    },
  },
};
