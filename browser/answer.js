/** Answers as Swagger UI shows them. */
import { createNextPage } from './requests.js';

/** Scrolls each new answer into view, and moves the focus to it. */
export const createLiveResponse = (Original, system) => {
  const { createElement: h, useEffect, useRef } = system.React;
  const NextPage = createNextPage(system);

  return function LiveResponse(props) {
    const { response } = props;
    const place = useRef(null);
    // For the same answer, Swagger UI passes a new object each time; its headers stay the same object.
    const answer = response.get('headers');
    useEffect(() => {
      place.current.focus({ preventScroll: true });
      place.current.scrollIntoView();
    }, [answer]);
    return h(
      'section',
      { ref: place, tabIndex: -1, className: 'answer', 'aria-label': 'Answer' },
      h(NextPage, { response }),
      h(Original, props),
    );
  };
};

/** The answers that every client gets; others are collapsed. */
const COMMON = ['200', '400', '429'];

export const createResponse = (Original, { React: { createElement: h } }) =>
  function Response(props) {
    const { code, response, getComponent } = props;
    if (COMMON.includes(code)) return h(Original, props);
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

/** The menu of an answer's examples, with a label. */
export const createExamplesSelect = (Original, { React: { createElement: h } }) =>
  function ExamplesSelect(props) {
    return h('label', null, h('span', { className: 'visually-hidden' }, 'Example'), h(Original, props));
  };

/** JSON or a command: values have a different color than names, and the type of a problem is a link. */
export const createCode = (_Original, { React: { createElement: h } }) =>
  function Code({ className = '', children }) {
    const parts = String(children).split(/("(?:[^"\\]|\\.)*")/);
    return h(
      // It may have more lines than it shows, so it can be scrolled with the keyboard.
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
