/** Components of Swagger UI that this page replaces. */
import { parts } from './json.js';
import { askForKey, needsKey } from './key.js';
import { curl } from './request.js';

/** Collapses the responses until a request was sent. They are rendered last, so Swagger UI is shown after them. */
export const createResponses = (Original, { React: { createElement: h, useEffect } }) =>
  function Responses(props) {
    useEffect(() => document.getElementById('swagger-ui').removeAttribute('aria-busy'), []);
    const isSent = Boolean(props.tryItOutResponse);
    const title = isSent ? 'The response, and all possible ones' : 'All possible responses';
    return h('details', { open: isSent }, h('summary', null, title), h(Original, props));
  };

/** Asks for the key before a request, which is not sent without it. The service, not this form, checks the parameters. */
export const createExecute = ({ React: { createElement: h } }) =>
  function Execute({ disabled, operation, path, method, specActions, onExecute }) {
    async function execute() {
      if (!(await askForKey())) return;
      onExecute();
      specActions.execute({ operation, path, method });
    }
    return h('button', { className: 'btn execute opblock-control__btn', disabled, onClick: execute }, 'Execute');
  };

/** Shows the curl command, which Swagger UI would write with the key. */
export const createCurl = ({ React: { createElement: h } }) =>
  function Curl({ request }) {
    return h('pre', { className: 'curl microlight', tabIndex: 0 }, curl(request.get('url'), needsKey));
  };

/** Adds a label to the menu of a response's examples. */
export const createExamplesSelect = (Original, { React: { createElement: h } }) =>
  function ExamplesSelect(props) {
    return h('label', null, h('span', { className: 'visually-hidden' }, 'Example'), h(Original, props));
  };

/** Shows JSON, with colors that have enough contrast. */
export const createCode = (_Original, { React: { createElement: h } }) =>
  function Code({ className = '', children }) {
    // A response scrolls, so the keyboard has to reach it. An example is shown whole, in a panel that has the focus.
    const tabIndex = className.includes('example') ? undefined : 0;
    return h(
      'pre',
      { className: `microlight ${className}`, tabIndex },
      parts(String(children)).map(({ text, kind }, key) => (kind ? h('span', { key, className: kind }, text) : text)),
    );
  };
