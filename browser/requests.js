/** Buttons that send requests: one for each of the contract's `x-requests`, and "Next page". */
import { createGetStarted } from './getStarted.js';
import { asEntered } from './parameterRow.js';

/** Returns the document's only operation, with its path and method; undefined until the document is loaded. */
function operationOf({ specSelectors }) {
  const [path] = specSelectors.paths().keySeq();
  const operation = specSelectors.specResolvedSubtree(['paths', path, 'get']);
  return operation && { path, method: 'get', operation };
}

/**
 * Sets the parameters to `values`, clears the rest, and sends the request; or shows the API key dialog if a key is
 * missing.
 */
function send({ authActions, authSelectors, specActions }, { path, method, operation }, values) {
  const schemes = authSelectors.definitionsToAuthorize();
  if (schemes?.size > 0 && !authSelectors.authorized().size) return authActions.showDefinitions(schemes);
  for (const parameter of operation.get('parameters')) {
    specActions.changeParamByIdentity([path, method], parameter, values[parameter.get('name')] ?? null, false);
  }
  specActions.execute({ path, method, operation });
}

/** Shows the section "Get started", the buttons that send a request, and the rest of the document's description. */
export const createRequests = (system, description) => {
  const { createElement: h } = system.React;
  const GetStarted = createGetStarted(system);

  return function Requests({ getComponent }) {
    const target = operationOf(system);
    if (!target) return null;
    const Markdown = getComponent('Markdown', true);
    const { parameters, 'x-requests': requests } = target.operation.toJS();
    const valuesOf = (exampleNames) =>
      Object.fromEntries(
        parameters
          .filter(({ name }) => exampleNames[name])
          .map(({ name, examples }) => [name, asEntered(examples[exampleNames[name]].value)]),
      );
    return [
      h(GetStarted, { key: 'start', access: description.access, path: target.path, Markdown }),
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
              { key: summary, type: 'button', onClick: () => send(system, target, valuesOf(examples)) },
              summary,
            ),
          ),
        ),
      ),
      h('div', { key: 'rest', className: 'info wrapper' }, h(Markdown, { source: description.rest })),
    ];
  };
};

/** Shows a button that requests the next page with the same filters, unless the current page is the last one. */
export const createNextPage = (system) => {
  const { createElement: h } = system.React;

  return function NextPage({ response }) {
    const nextCursor = nextCursorIn(response.get('text'));
    if (!nextCursor) return null;
    const sendNext = () => {
      const target = operationOf(system);
      const { specSelectors } = system;
      const { parameters } = target.operation.toJS();
      const values = Object.fromEntries(
        parameters.map(({ name }, index) => {
          const parameter = target.operation.getIn(['parameters', index]);
          const value = specSelectors.parameterWithMetaByIdentity([target.path, target.method], parameter).get('value');
          return [name, value?.toJS?.() ?? value];
        }),
      );
      send(system, target, { ...values, nextCursor });
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
