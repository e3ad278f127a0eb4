/** Replaces the rows of Swagger UI's parameter table. A row has a field; if it is empty, the parameter is omitted. */

/**
 * Returns the component for a row. Swagger UI's row fills in the first example of every parameter, so that the first
 * request would have all filters, and its fields have no labels.
 */
export const createParameterRow = ({ React: { createElement: h, useState } }) => {
  /** The type and bounds of each parameter, by name. */
  const words = JSON.parse(document.getElementById('swagger-ui').dataset.words);

  function ParameterRow({ param, rawParam, onChange, getComponent }) {
    const Markdown = getComponent('Markdown', true);
    const { name, schema, description = '', examples = {} } = param.delete('value').toJS();
    const value = param.get('value')?.toJS?.() ?? param.get('value');
    const id = `field-${name}`;
    const hint = [...words[name], schema.items && !schema.items.enum && 'one per line'].filter(Boolean).join('; ');
    const set = (next) => onChange(rawParam, next.length === 0 ? null : next, false);
    const field = { id, name, schema, value, set };
    return h(
      'tr',
      { 'data-param-name': name },
      h(
        'td',
        { className: 'parameters-col_name' },
        schema.items?.enum
          ? h('span', { className: 'parameter__name', id }, name)
          : h('label', { className: 'parameter__name', htmlFor: id }, name),
      ),
      h(
        'td',
        { className: 'parameters-col_description' },
        h(Markdown, { source: description }),
        h('p', { id: `${id}-hint`, className: 'quiet' }, hint),
        h(schema.items?.enum ? Choices : schema.items ? Lines : Line, field),
        schema.items?.enum ? null : h(Examples, { name, examples, set }),
      ),
    );
  }

  function Line({ id, schema, value, set }) {
    return h('input', {
      id,
      'aria-describedby': `${id}-hint`,
      type: 'text',
      inputMode: schema.type === 'integer' ? 'numeric' : 'text',
      autoComplete: 'off',
      spellCheck: false,
      value: value ?? '',
      onChange: ({ target }) => set(target.value),
    });
  }

  /** A field with one value per line, since no value contains a line break. */
  function Lines({ id, value = [], set }) {
    const values = value ?? [];
    const [typed, setTyped] = useState('');
    // Keeps empty lines that are being typed: they are not values yet.
    const text = sameLines(valuesIn(typed), values) ? typed : values.join('\n');
    return h('textarea', {
      id,
      'aria-describedby': `${id}-hint`,
      spellCheck: false,
      rows: Math.max(2, text.split('\n').length),
      value: text,
      onChange: ({ target }) => {
        setTyped(target.value);
        set(valuesIn(target.value));
      },
    });
  }

  function Choices({ id, schema, value, set }) {
    const values = value ?? [];
    const toggle = (choice) =>
      values.includes(choice) ? values.filter((value) => value !== choice) : [...values, choice];
    return h(
      'div',
      { role: 'group', 'aria-labelledby': id, className: 'choices' },
      schema.items.enum.map((choice) =>
        h(
          'label',
          { key: choice },
          h('input', {
            type: 'checkbox',
            value: choice,
            checked: values.includes(choice),
            onChange: () => set(toggle(choice)),
          }),
          choice,
        ),
      ),
    );
  }

  function Examples({ name, examples, set }) {
    const all = Object.entries(examples);
    if (all.length === 0) return null;
    return h(
      'div',
      { className: 'parameter-examples' },
      'Fill in: ',
      all.map(([key, { summary, value }]) =>
        h(
          'button',
          {
            key,
            type: 'button',
            'data-example': key,
            'aria-label': `${summary}, as ${name}`,
            onClick: () => set(asEntered(value)),
          },
          summary,
        ),
      ),
    );
  }

  return ParameterRow;
};

/** Returns an example's value as a string, or as an array of strings. */
function asEntered(value) {
  return Array.isArray(value) ? value.map(String) : String(value);
}

function valuesIn(text) {
  return text.split('\n').filter((line) => line !== '');
}

function sameLines(a, b) {
  return a.join('\n') === b.join('\n');
}
