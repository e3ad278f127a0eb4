/** The components that show responses in Swagger UI. */
import { createNextPage } from './requests.js';

/** Scrolls each new response into view, and moves the focus to it. */
export const createLiveResponse = (Original, system) => {
  const { createElement: h, useEffect, useRef } = system.React;
  const NextPage = createNextPage(system);

  return function LiveResponse(props) {
    const { response } = props;
    const section = useRef(null);
    // For the same response, Swagger UI passes a new object each time, but the same headers object.
    const headers = response.get('headers');
    useEffect(() => {
      section.current.focus({ preventScroll: true });
      section.current.scrollIntoView();
    }, [headers]);
    return h(
      'section',
      { ref: section, tabIndex: -1, className: 'live-response', 'aria-label': 'Response' },
      h(NextPage, { response }),
      h(Original, props),
    );
  };
};

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

/** Shows JSON or a command. Colors values, and makes the type of a problem a link. */
export const createCode = (_Original, { React: { createElement: h } }) =>
  function Code({ className = '', children }) {
    const parts = String(children).split(/("(?:[^"\\]|\\.)*")/);
    return h(
      // Focusable, so that it can be scrolled with the keyboard.
      'pre',
      { className: `microlight ${className}`, tabIndex: 0 },
      parts.map((part, index) => {
        const isName = /^\s*:/.test(parts[index + 1] ?? '');
        if (index % 2 === 0 || isName) return part;
        const [, problem] = /^"\/(?:[^"]*\/)?(problems\/[\w-]+)"$/.exec(part) ?? [];
        if (problem) return h('a', { key: index, href: new URL(problem, document.baseURI).href }, part);
        return h('span', { key: index, className: 'text' }, part);
      }),
    );
  };
