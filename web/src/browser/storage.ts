/** What the browser keeps for the user; some browsers keep nothing for a file, or refuse to be asked. */

export function kept(name: string): string | null {
  try {
    return globalThis.localStorage?.getItem(name) ?? null;
  } catch {
    return null;
  }
}

export function keep(name: string, value: string): void {
  try {
    localStorage.setItem(name, value);
  } catch {
    // it counts until the page is left
  }
}
