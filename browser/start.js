/* global SwaggerUIBundle */
import { createCode, createExamplesSelect, createLiveResponse, createResponse } from './answer.js';
import { createParameterRow } from './parameterRow.js';
import { createRequests } from './requests.js';

/** The description after its first paragraph, which stands below the requests. */
let restOfDescription = '';

function forThisPage(text) {
  const contract = JSON.parse(text);
  // Requests go to where this page is, be it behind a path prefix.
  contract.servers = [{ url: new URL('.', document.baseURI).pathname }];
  const [first, ...rest] = contract.info.description.split('\n\n');
  contract.info.description = first;
  restOfDescription = rest.join('\n\n');
  return JSON.stringify(contract);
}

const nothing = () => () => null;

const ours = (system) => ({
  statePlugins: {
    spec: {
      wrapActions: { updateSpec: (original) => (text) => original(forThisPage(text)) },
      // What is wrong with a request is said by the service, in its answer, as any client gets it.
      wrapSelectors: { validateBeforeExecute: () => () => true, validationErrors: () => () => [] },
    },
  },
  wrapComponents: {
    // There is one server, one operation and no filter of operations; trying out can't be left. Our header has the links.
    ServersContainer: nothing,
    InfoUrl: nothing,
    TryItOutButton: nothing,
    OperationTag:
      () =>
      ({ children }) =>
        children,
    FilterContainer: () => createRequests(system, () => restOfDescription),
    parameterRow: () => createParameterRow(system),
    response: createResponse,
    liveResponse: createLiveResponse,
    ExamplesSelect: createExamplesSelect,
    // The name of a button is what stands on it.
    Button:
      (Original, { React }) =>
      (props) =>
        React.createElement(Original, { ...props, 'aria-label': undefined }),
    CloseIcon:
      (Original, { React: { createElement: h, Fragment } }) =>
      () =>
        h(Fragment, null, h('span', { className: 'visually-hidden' }, 'Close'), h(Original)),
    PlainTextViewer: createCode,
  },
});

// Swagger UI's style sheet has colors for the dark, but no media query.
const dark = matchMedia('(prefers-color-scheme: dark)');
const followSystem = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followSystem);
followSystem();

SwaggerUIBundle({
  dom_id: '#swagger-ui',
  // Relative to the page, so that it is found behind a path prefix, too.
  url: new URL('openapi.json', document.baseURI).href,
  // Without the standalone preset there is no bar that loads other documents; without a validator no outside host.
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [ours],
  validatorUrl: null,
  docExpansion: 'full',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // Its colors are too weak on their background, and its blocks out of the keyboard's reach.
  syntaxHighlight: { activated: false },
  tryItOutEnabled: true,
  // A key is a secret: it does not outlive the page.
  persistAuthorization: false,
});
