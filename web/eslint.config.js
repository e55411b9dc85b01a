import js from "@eslint/js";
import tseslint from "typescript-eslint";

export default tseslint.config({ ignores: ["src/api/schema.d.ts"] }, js.configs.recommended, tseslint.configs.recommended, {
  rules: {
    // taking a name out of an object is how the rest of it is had
    "@typescript-eslint/no-unused-vars": ["error", { ignoreRestSiblings: true }],
  },
});
