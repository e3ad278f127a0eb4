/** Creates the section at the top of /docs: how to get access, and a first program in each language. */
const LANGUAGES = ['curl', 'TypeScript', 'Python', 'Java', 'Go'];
const LINKS = { Clients: 'clients/README.md', Changes: 'docs/api-changelog.md', Deprecation: 'docs/deprecation.md' };

export const createGetStarted = ({ React: { createElement: h, useState }, specSelectors }) => {
  const root = new URL('.', document.baseURI).href.replace(/\/$/, '');
  const needsKey = () => specSelectors.securityDefinitions()?.size > 0;
  const curl = (path) =>
    `\`\`\`sh\ncurl ${needsKey() ? '--header "Authorization: Bearer $KEY" ' : ''}'${root}${path}?size=5'\n\`\`\``;

  /**
   * Returns the first program of a client's README and, if the service requires a key, the next list item, which tells
   * how to set it.
   */
  async function firstProgram(client) {
    const readme = await (await fetch(`clients/${client}/README.md`)).text();
    const [program, key] = readme.slice(readme.indexOf('```')).split('\n- ');
    return (needsKey() ? `${program}\n${key}` : program).replaceAll('http://localhost:3000', root);
  }

  /** `access` is the document's paragraph about keys and the rate limit; `path` is the operation's path. */
  return function GetStarted({ access, path, Markdown }) {
    const [{ language, source }, setSample] = useState({ language: 'curl', source: curl(path) });
    const choose = async (name) =>
      setSample({ language: name, source: name === 'curl' ? curl(path) : await firstProgram(name.toLowerCase()) });
    return h(
      'section',
      { className: 'start info wrapper', 'aria-labelledby': 'start-title' },
      h('h2', { id: 'start-title' }, 'Get started'),
      h(Markdown, { source: access }),
      h(
        'div',
        { className: 'buttons', role: 'group', 'aria-label': 'Language' },
        LANGUAGES.map((name) =>
          h(
            'button',
            { key: name, type: 'button', 'aria-pressed': name === language, onClick: () => choose(name) },
            name,
          ),
        ),
      ),
      h(Markdown, { source }),
      h(
        'nav',
        { className: 'buttons', 'aria-label': 'Further reading' },
        Object.entries(LINKS).map(([name, href]) => h('a', { key: name, href }, name)),
      ),
    );
  };
};
