/* global SwaggerUIBundle */

// Swagger UI fills in the first example of every parameter, so the first request would ask for all filters at once and
// find nothing. A choice of ours in front of the examples leaves the parameter out.
function withChoiceToLeaveOut(parameter) {
  if (!parameter.examples) return parameter;
  const value = parameter.schema?.type === 'array' ? [] : '';
  return { ...parameter, examples: { leftOut: { summary: 'Leave it out', value }, ...parameter.examples } };
}

// Swagger UI offers a menu for one list of values, but not for a choice between two lists.
function withOneList(schema, schemas) {
  const lists = schema.anyOf?.map(({ $ref }) => schemas[$ref.split('/').pop()]);
  if (!lists?.every((list) => list?.enum)) return schema;
  const { anyOf, ...rest } = schema;
  return { ...rest, type: 'string', enum: lists.flatMap((list) => list.enum) };
}

function easierToTryOut(text) {
  const contract = JSON.parse(text);
  const { parameters, schemas } = contract.components;
  for (const name of Object.keys(parameters)) parameters[name] = withChoiceToLeaveOut(parameters[name]);
  for (const name of Object.keys(schemas)) schemas[name] = withOneList(schemas[name], schemas);
  // Requests go to where this page is, be it behind a path prefix.
  contract.servers = [{ url: new URL('.', document.baseURI).pathname }];
  return JSON.stringify(contract);
}

SwaggerUIBundle({
  dom_id: '#swagger-ui',
  // Relative to the page, so that it is found behind a path prefix, too.
  url: new URL('openapi.json', document.baseURI).href,
  // Without the standalone preset there is no bar that loads other documents; without a validator no outside host.
  presets: [SwaggerUIBundle.presets.apis],
  plugins: [
    {
      statePlugins: {
        spec: { wrapActions: { updateSpec: (original) => (text) => original(easierToTryOut(text)) } },
      },
    },
  ],
  validatorUrl: null,
  deepLinking: true,
  docExpansion: 'full',
  defaultModelsExpandDepth: 0,
  displayRequestDuration: true,
  tryItOutEnabled: true,
  // A key is a secret: it does not outlive the page.
  persistAuthorization: false,
});
