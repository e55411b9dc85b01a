/** Names of kernels as short as they can be told from each other: the names that C++ gives begin with what all of them share. */

/** what says in which library a kernel lies and nothing of what it does */
const NAMESPACES = /\b(?:at::native|at::detail|at::cuda|at|c10|cudnn|detail|std|cub|thrust)::|\(anonymous namespace\)::/g;
/** kernels that do whatever they are given: what they are given is the name */
const GENERIC = /(?:elementwise|reduce|index|scan|apply)\w*_kernel|_kernel_impl|DeviceReduceKernel/;
/** what a generic kernel is given: the function in which a lambda stands, or a functor */
const FUNCTION = /(\w+_kernel(?:_\w+)?|launch_\w+|\w+_cuda)(?:<([\w\s]*)>)?\(/;
const FUNCTOR = /(\w*[Ff]unctor(?:_\w+)?|\w+Ops?)<([\w\s]*)/;

/** A kernel without its namespaces and parameters, what tells it apart first; or without the scopes of a graph. */
export function kernelLabel(name: string): string {
  if (/^[\w.-]+(\/[\w.-]+)+$/.test(name)) return name.slice(name.lastIndexOf("/") + 1);
  const plain = withoutParameters(name.replace(/^void /, "").replaceAll(NAMESPACES, ""));
  const open = plain.indexOf("<");
  if (open < 0 || !GENERIC.test(plain.slice(0, open))) return plain;
  const inside = plain.slice(open + 1);
  const given = FUNCTION.exec(inside) ?? FUNCTOR.exec(inside);
  if (!given) return plain;
  const type = given[2]?.trim();
  return `${given[1]}${type ? `<${type}>` : ""} · ${plain}`;
}

/** The name of a function without the types of its parameters, which stand behind everything else. */
function withoutParameters(name: string): string {
  let depth = 0;
  for (let at = 0; at < name.length; at++) {
    if (name[at] === "<") depth++;
    else if (name[at] === ">" && name[at - 1] !== "-") depth--;
    else if (name[at] === "(" && depth === 0 && at > 0) return name.slice(0, at);
  }
  return name;
}
