/** The script of /swagger: Swagger UI, with some of its components replaced. Its page loads the bundle before this. */
import { createCode, createCurl, createExamplesSelect, createExecute, createResponses } from './components.js';
import { forgetKey, keyHeaders } from './key.js';
import { createParameterRow } from './parameterRow.js';

function adaptDocument(text) {
  const contract = JSON.parse(text);
  // Requests go to the host and path prefix of this page.
  contract.servers = [{ url: new URL('.', document.baseURI).pathname }];
  // The page's own dialog asks for the key.
  delete contract.security;
  delete contract.components.securitySchemes;
  return JSON.stringify(contract);
}

const plugin = ({ React: { createElement: h, Fragment } }) => ({
  components: {
    // Only the operation: the rest of the page has the title, the description and the members of responses, and there is
    // one server.
    OperationsLayout({ getComponent, specSelectors }) {
      const children = [h(getComponent('SvgAssets')), h(getComponent('errors', true))];
      if (specSelectors.loadingStatus() === 'success') children.push(h(getComponent('operations', true)));
      return h('div', { className: 'swagger-ui' }, ...children);
    },
  },
  statePlugins: {
    spec: {
      wrapActions: { updateSpec: (original) => (text) => original(adaptDocument(text)) },
    },
  },
  wrapComponents: {
    // "Try it out" is always on.
    TryItOutButton: () => () => null,
    // A heading of level 3, between the page's headings of level 2 and Swagger UI's headings of level 4.
    OperationTag:
      () =>
      ({ children }) =>
        h(Fragment, null, h('h3', { className: 'visually-hidden' }, 'The operation'), children),
    parameterRow: (_Original, system) => createParameterRow(system),
    execute: (_Original, system) => createExecute(system),
    curl: (_Original, system) => createCurl(system),
    responses: createResponses,
    ExamplesSelect: createExamplesSelect,
    // Removes aria-label, so that a button's accessible name is its text.
    Button: (Original) => (props) => h(Original, { ...props, 'aria-label': undefined }),
    PlainTextViewer: createCode,
  },
});

// Swagger UI's style sheet has colors for dark mode, but no media query.
const dark = matchMedia('(prefers-color-scheme: dark)');
const followSystem = () => document.documentElement.classList.toggle('dark-mode', dark.matches);
dark.addEventListener('change', followSystem);
followSystem();

const place = document.getElementById('swagger-ui');
if (window.SwaggerUIBundle) showSwagger();
else place.firstChild.textContent = 'The form could not be loaded. Reload the page to retry.';

function showSwagger() {
  // Hidden while it is rendered in steps; components.js ends it.
  place.ariaBusy = 'true';
  window.SwaggerUIBundle({
    dom_id: '#swagger-ui',
    // Relative to the page, so that it works behind a path prefix.
    url: new URL('openapi.json', document.baseURI).href,
    // No standalone preset, since it adds a field for the URL of a document. No validator, since it would call another
    // host.
    presets: [window.SwaggerUIBundle.presets.apis],
    plugins: [plugin],
    validatorUrl: null,
    layout: 'OperationsLayout',
    docExpansion: 'full',
    displayRequestDuration: true,
    // Swagger UI's highlighting has too little contrast, and its code blocks can't be focused with the keyboard.
    syntaxHighlight: { activated: false },
    tryItOutEnabled: true,
    requestInterceptor(request) {
      return request.loadSpec ? request : { ...request, headers: { ...request.headers, ...keyHeaders() } };
    },
    responseInterceptor(response) {
      if (response.status === 401) forgetKey();
      return response;
    },
  });
}
