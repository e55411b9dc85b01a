/** Writes the types of the server's answers to a file, or prints them; its OpenAPI document comes on standard input. */

import { writeFileSync } from "node:fs";
import process from "node:process";
import { text } from "node:stream/consumers";

import openapiTS, { astToString } from "openapi-typescript";

const options = { rootTypes: true, rootTypesNoSchemaPrefix: true, rootTypesKeepCasing: true, alphabetize: true };
const types = astToString(await openapiTS(await text(process.stdin), options));
const made = `// "make web-types" makes this from the server's OpenAPI document; do not edit it.\n\n${types}`;
const [, , file] = process.argv;
if (file) writeFileSync(file, made);
else process.stdout.write(made);
