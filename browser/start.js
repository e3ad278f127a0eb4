/* global SwaggerUIBundle */

import { createParameterRow } from './parameterRow.js';
import { createRequests } from './requests.js';
import { createCode, createExamplesSelect, createLiveResponse, createResponse } from './response.js';

/** The parts of the document's description that are shown above and below the buttons for requests. */
const description = { access: '', rest: '' };

function adaptDocument(text) {
  const contract = JSON.parse(text);
  // Requests go to the host and path of this page, also behind a path prefix.
  contract.servers = [{ url: new URL('.', document.baseURI).pathname }];
  const [purpose, access, ...rest] = contract.info.description.split('\n\n');
  Object.assign(description, { access, rest: [purpose, ...rest].join('\n\n') });
  // The license is shown only in the document itself, to leave the top of the page to the first steps.
  Object.assign(contract.info, { description: undefined, license: undefined });
  return JSON.stringify(contract);
}

const Hidden = () => () => null;

const ours = (system) => ({
  statePlugins: {
    spec: {
      wrapActions: { updateSpec: (original) => (text) => original(adaptDocument(text)) },
      // Not validated here: the service reports the faults of a request in its response, as to any client.
      wrapSelectors: { validateBeforeExecute: () => () => true, validationErrors: () => () => [] },
    },
  },
  wrapComponents: {
    // There is only one server and one operation to choose, "Try it out" is always on, and our header has the links.
    ServersContainer: Hidden,
    InfoUrl: Hidden,
    TryItOutButton: Hidden,
    // Swagger UI's headings below are of level 4 and ours above of level 2, so this one is of level 3.
    OperationTag:
      (_Original, { React: { createElement: h, Fragment } }) =>
      ({ children }) =>
        h(Fragment, null, h('h3', { className: 'visually-hidden' }, 'All parameters and responses'), children),
    FilterContainer: () => createRequests(system, description),
    parameterRow: () => createParameterRow(system),
    response: createResponse,
    liveResponse: createLiveResponse,
    ExamplesSelect: createExamplesSelect,
    // Without aria-label, a button's accessible name is its text.
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
  // Relative to the page, so that it is also found behind a path prefix.
  url: new URL('openapi.json', document.baseURI).href,
  // Without the standalone preset there is no field for other documents, and without a validator no request to another host.
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [ours],
  validatorUrl: null,
  docExpansion: 'full',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // Swagger UI's highlighting has too little contrast, and its blocks can't be reached with the keyboard.
  syntaxHighlight: { activated: false },
  tryItOutEnabled: true,
  // A key is a secret: it does not outlive the page.
  persistAuthorization: false,
});
