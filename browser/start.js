/* global SwaggerUIBundle */
import { createCode, createExamplesSelect, createLiveResponse, createResponse } from './answer.js';
import { createParameterRow } from './parameterRow.js';
import { createRequests } from './requests.js';

/** The parts of the document's description, which are shown above and below the requests. */
const description = { access: '', rest: '' };

function forThisPage(text) {
  const contract = JSON.parse(text);
  // Requests go to where this page is, even behind a path prefix.
  contract.servers = [{ url: new URL('.', document.baseURI).pathname }];
  const [purpose, access, ...rest] = contract.info.description.split('\n\n');
  Object.assign(description, { access, rest: [purpose, ...rest].join('\n\n') });
  // Its license stays in the document: above the fold, there is something to do.
  Object.assign(contract.info, { description: undefined, license: undefined });
  return JSON.stringify(contract);
}

const nothing = () => () => null;

const ours = (system) => ({
  statePlugins: {
    spec: {
      wrapActions: { updateSpec: (original) => (text) => original(forThisPage(text)) },
      // Faults of a request are reported by the service in its answer, as to any client.
      wrapSelectors: { validateBeforeExecute: () => () => true, validationErrors: () => () => [] },
    },
  },
  wrapComponents: {
    // There is one server and one operation; nothing to choose or filter. "Try it out" is always on. Our header has the links.
    ServersContainer: nothing,
    InfoUrl: nothing,
    TryItOutButton: nothing,
    // Its headings are of the fourth level; the requests' is of the second.
    OperationTag:
      (_Original, { React: { createElement: h, Fragment } }) =>
      ({ children }) =>
        h(Fragment, null, h('h3', { className: 'visually-hidden' }, 'All parameters and answers'), children),
    FilterContainer: () => createRequests(system, description),
    parameterRow: () => createParameterRow(system),
    response: createResponse,
    liveResponse: createLiveResponse,
    ExamplesSelect: createExamplesSelect,
    // A button's accessible name is its text.
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

// Swagger UI's style sheet has colors for dark mode, but no media query.
const dark = matchMedia('(prefers-color-scheme: dark)');
const followSystem = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followSystem);
followSystem();

SwaggerUIBundle({
  dom_id: '#swagger-ui',
  // Relative to the page, so that it is found behind a path prefix, too.
  url: new URL('openapi.json', document.baseURI).href,
  // Without the standalone preset, there is no bar for loading other documents; without a validator, no outside host.
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [ours],
  validatorUrl: null,
  docExpansion: 'full',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // Its colors have too little contrast, and its blocks can't be reached with the keyboard.
  syntaxHighlight: { activated: false },
  tryItOutEnabled: true,
  // A key is a secret: it does not outlive the page.
  persistAuthorization: false,
});
