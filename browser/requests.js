/** Requests that a button sends: those that the contract names, and the one for the next page. */
import { createGetStarted } from './getStarted.js';
import { asEntered } from './parameterRow.js';

/** The one operation and where it is: `[path, method]`. Undefined until the document has been read. */
function operationOf({ specSelectors }) {
  const [path] = specSelectors.paths().keySeq();
  const operation = specSelectors.specResolvedSubtree(['paths', path, 'get']);
  return operation && { path, method: 'get', operation };
}

/** Fills in the parameters of `values`, leaves out all others, and sends the request, or asks for the key that it needs. */
function send({ authActions, authSelectors, specActions }, { path, method, operation }, values) {
  const waysIn = authSelectors.definitionsToAuthorize();
  if (waysIn?.size > 0 && !authSelectors.authorized().size) return authActions.showDefinitions(waysIn);
  for (const parameter of operation.get('parameters')) {
    specActions.changeParamByIdentity([path, method], parameter, values[parameter.get('name')] ?? null, false);
  }
  specActions.execute({ path, method, operation });
}

/** The strip below the title and the row of buttons, before the rest of the document's description. */
export const createRequests = (system, description) => {
  const { createElement: h } = system.React;
  const GetStarted = createGetStarted(system);

  return function Requests({ getComponent }) {
    const found = operationOf(system);
    if (!found) return null;
    const Markdown = getComponent('Markdown', true);
    const { parameters, 'x-requests': requests } = found.operation.toJS();
    const valuesOf = (chosen) =>
      Object.fromEntries(
        parameters
          .filter(({ name }) => chosen[name])
          .map(({ name, examples }) => [name, asEntered(examples[chosen[name]].value)]),
      );
    return [
      h(GetStarted, { key: 'start', access: description.access, path: found.path, Markdown }),
      h(
        'section',
        { key: 'requests', className: 'requests wrapper', 'aria-labelledby': 'requests-title' },
        h('h2', { id: 'requests-title' }, 'Send a request'),
        h(
          'div',
          { className: 'buttons' },
          requests.map(({ summary, examples }) =>
            h(
              'button',
              { key: summary, type: 'button', onClick: () => send(system, found, valuesOf(examples)) },
              summary,
            ),
          ),
        ),
      ),
      h('div', { key: 'rest', className: 'info wrapper' }, h(Markdown, { source: description.rest })),
    ];
  };
};

/** Asks for the page that follows the one shown, with the same filters. */
export const createNextPage = (system) => {
  const { createElement: h } = system.React;

  return function NextPage({ response }) {
    const nextCursor = nextCursorIn(response.get('text'));
    if (!nextCursor) return null;
    const sendNext = () => {
      const found = operationOf(system);
      const { specSelectors } = system;
      const { parameters } = found.operation.toJS();
      const values = Object.fromEntries(
        parameters.map(({ name }, index) => {
          const parameter = found.operation.getIn(['parameters', index]);
          const value = specSelectors.parameterWithMetaByIdentity([found.path, found.method], parameter).get('value');
          return [name, value?.toJS?.() ?? value];
        }),
      );
      send(system, found, { ...values, nextCursor });
    };
    return h('button', { type: 'button', className: 'next-page', onClick: sendNext }, 'Next page');
  };
};

function nextCursorIn(text) {
  try {
    return JSON.parse(text).nextCursor;
  } catch {
    return undefined;
  }
}
