import { defineConfig } from "vitest/config";

export default defineConfig({
  base: "./",
  build: {
    outDir: "../src/steplens/server/static",
    emptyOutDir: true,
    // the server's policy forbids data: scripts and inline styles; small assets stay files
    assetsInlineLimit: 0,
    chunkSizeWarningLimit: 1500,
    // a report holds the pages in one file
    modulePreload: false,
    cssCodeSplit: false,
    rolldownOptions: { output: { codeSplitting: false } },
  },
  // how long a test takes says how busy the machine is
  test: { include: ["tests/**/*.test.ts"], environment: "node", testTimeout: 120_000, hookTimeout: 120_000 },
});
