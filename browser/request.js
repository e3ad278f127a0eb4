/** A request as a command, and as a program in each language of a client. */

/** Returns the curl command; `$KEY` stands for the key. */
export function curl(url, needsKey) {
  const key = needsKey ? '--header "Authorization: Bearer $KEY" ' : '';
  return `curl ${key}'${new URL(url).href.replaceAll("'", '%27')}'`;
}

const capitalized = (name) => name[0].toUpperCase() + name.slice(1);
/** Returns the name that the generated clients give a value: `pending.initialOptIn` is `PENDING_INITIAL_OPT_IN`. */
const constant = (value) => value.replace(/[^A-Za-z0-9]+|(?<=[a-z])(?=[A-Z])/g, '_').toUpperCase();
const snakeCase = (name) => name.replace(/[A-Z]/g, (letter) => `_${letter.toLowerCase()}`);
/** Returns a literal of all four languages. Go refuses a byte order mark. */
const quoted = (value) => JSON.stringify(value).replaceAll('\ufeff', '\\ufeff');
const singleQuoted = (value) => {
  const characters = quoted(value).slice(1, -1).replaceAll('\\"', '"').replaceAll("'", "\\'");
  return `'${characters}'`;
};

/** How each client's README writes a text, a value of an enum, a list, and the filters of a walk. */
const LANGUAGES = {
  TypeScript: {
    text: singleQuoted,
    list: (values) => `[${values.join(', ')}]`,
    filters: (all) => all.length && `, { ${all.map(([name, value]) => `${name}: ${value}`).join(', ')} }`,
  },
  Python: {
    text: quoted,
    list: (values) => `[${values.join(', ')}]`,
    filters: (all) => all.map(([name, value]) => `, ${snakeCase(name)}=${value}`).join(''),
  },
  Java: {
    text: (value, type) => (type === 'uuid' ? `java.util.UUID.fromString(${quoted(value)})` : quoted(value)),
    enum: (value, type) => `${type}.${constant(value)}`,
    list: (values) => `List.of(${values.join(', ')})`,
    filters: (all) => all.map(([name, value]) => `.${name}(${value})`).join(''),
  },
  Go: {
    text: quoted,
    enum: (value, type) => `client.${type.toUpperCase()}_${constant(value)}`,
    list: (values, type) => `[]${type === 'string' ? type : `client.${type}`}{${values.join(', ')}}`,
    filters: (all) => all.length && `.\n\t\t${all.map(([name, value]) => `${capitalized(name)}(${value})`).join('.')}`,
  },
};

/**
 * Returns a program of a README with the filters of another query.
 * @param sample the program, and the `query` that it has
 * @param parameters the `type` of each parameter, such as `StatusFilter[]`, and its `values` if it has a list of them, by name
 * @throws a message for the reader if the client can't send such a query
 */
export function program(language, sample, query, parameters) {
  const replaced = sample.text.replace(
    filters(language, sample.query, parameters),
    // A function, because `$&` in a string would stand for what is replaced.
    () => filters(language, query, parameters),
  );
  // Only this enum has an import there.
  return replaced.replace('client.model.StatusFilter;', 'client.model.*;');
}

function filters(language, query, parameters) {
  const { text, list, filters, enum: constant = text } = LANGUAGES[language];
  const pairs = new URLSearchParams(query);
  const all = [...new Set(pairs.keys())].map((name) => {
    const given = pairs.getAll(name);
    const { type, values } = parameters.get(name) ?? {};
    if (!type) throw new Error(`The clients have no parameter ${name || 'without a name'}.`);
    const item = type.replace('[]', '');
    const written = given.map((value) => {
      if (values && !values.includes(value)) throw new Error(`The clients have no ${name} “${value}”.`);
      if (item !== 'integer') return values ? constant(value, item) : text(value, item);
      if (!/^\d+$/.test(value)) throw new Error(`${name} must be a number.`);
      return String(Number(value));
    });
    if (item !== type) return [name, list(written, item)];
    if (given.length > 1) throw new Error(`The clients send ${name} only once.`);
    return [name, written[0]];
  });
  return filters(all) || '';
}
