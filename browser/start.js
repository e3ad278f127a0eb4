/* global SwaggerUIBundle */

import { createParameterRow } from './parameterRow.js';
import { createRequests } from './requests.js';
import { createCode, createExamplesSelect, createLiveResponse, createResponse } from './response.js';

/** The parts of the document's description that are shown above and below the buttons for requests. */
const description = { access: '', rest: '' };

function adaptDocument(text) {
  const contract = JSON.parse(text);
  // Requests go to the host and path prefix of this page.
  contract.servers = [{ url: new URL('.', document.baseURI).pathname }];
  const [purpose, access, ...rest] = contract.info.description.split('\n\n');
  Object.assign(description, { access, rest: [purpose, ...rest].join('\n\n') });
  // The license is omitted here, so that "Get started" is at the top of the page.
  Object.assign(contract.info, { description: undefined, license: undefined });
  return JSON.stringify(contract);
}

const Hidden = () => () => null;

const plugin = (system) => ({
  statePlugins: {
    spec: {
      wrapActions: { updateSpec: (original) => (text) => original(adaptDocument(text)) },
      // No validation in the browser: the response of the service shows the faults of a request.
      wrapSelectors: { validateBeforeExecute: () => () => true, validationErrors: () => () => [] },
    },
  },
  wrapComponents: {
    // Not needed: there is one server and one operation, "Try it out" is always on, and the page's header has the
    // links.
    ServersContainer: Hidden,
    InfoUrl: Hidden,
    TryItOutButton: Hidden,
    // A heading of level 3, between the page's headings of level 2 and Swagger UI's headings of level 4.
    OperationTag:
      (_Original, { React: { createElement: h, Fragment } }) =>
      ({ children }) =>
        h(Fragment, null, h('h3', { className: 'visually-hidden' }, 'All parameters and responses'), children),
    FilterContainer: () => createRequests(system, description),
    parameterRow: () => createParameterRow(system),
    response: createResponse,
    liveResponse: createLiveResponse,
    ExamplesSelect: createExamplesSelect,
    // Removes aria-label, so that a button's accessible name is its text.
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
  // Relative to the page, so that it works behind a path prefix.
  url: new URL('openapi.json', document.baseURI).href,
  // No standalone preset, since it adds a field for the URL of a document. No validator, since it would call another
  // host.
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [plugin],
  validatorUrl: null,
  docExpansion: 'full',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  // Swagger UI's highlighting has too little contrast, and its code blocks can't be focused with the keyboard.
  syntaxHighlight: { activated: false },
  tryItOutEnabled: true,
  // The key is a secret: forget it when the page is closed.
  persistAuthorization: false,
});
