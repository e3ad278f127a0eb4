/** Components of Swagger UI that this page replaces. */
import { parts } from './json.js';

/** The responses that are shown expanded; the rest are collapsed. */
const COMMON_STATUSES = ['200', '400', '429'];

export const createResponse = (Original, { React: { createElement: h } }) =>
  function Response(props) {
    const { code, response, getComponent } = props;
    if (COMMON_STATUSES.includes(code)) return h(Original, props);
    const Markdown = getComponent('Markdown', true);
    return h(
      'tr',
      { className: 'response', 'data-code': code },
      h('td', { className: 'response-col_status' }, code),
      h(
        'td',
        { className: 'response-col_description' },
        h(
          'details',
          null,
          h('summary', null, h(Markdown, { source: response.get('description') })),
          h('table', { className: 'folded-response' }, h('tbody', null, h(Original, props))),
        ),
      ),
    );
  };

/** Adds a label to the menu of a response's examples. */
export const createExamplesSelect = (Original, { React: { createElement: h } }) =>
  function ExamplesSelect(props) {
    return h('label', null, h('span', { className: 'visually-hidden' }, 'Example'), h(Original, props));
  };

/** Shows JSON or a command, with colors that have enough contrast. */
export const createCode = (_Original, { React: { createElement: h } }) =>
  function Code({ className = '', children }) {
    // A response scrolls, so the keyboard has to reach it. An example is shown whole, in a panel that has the focus.
    const tabIndex = className.includes('example') ? undefined : 0;
    return h(
      'pre',
      { className: `microlight ${className}`, tabIndex },
      parts(String(children)).map(({ text, isValue }, key) =>
        isValue ? h('span', { key, className: 'text' }, text) : text,
      ),
    );
  };
