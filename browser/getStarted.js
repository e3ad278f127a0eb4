/** The strip at the top: how to get in, and a program to begin with in each language. */
const LANGUAGES = ['curl', 'TypeScript', 'Python', 'Java', 'Go'];
const FURTHER = { Clients: 'clients/README.md', Changes: 'docs/api-changelog.md', Deprecation: 'docs/deprecation.md' };

export const createGetStarted = ({ React: { createElement: h, useState }, specSelectors }) => {
  const root = new URL('.', document.baseURI).href.replace(/\/$/, '');
  const needsKey = () => specSelectors.securityDefinitions()?.size > 0;
  const curl = (path) =>
    `\`\`\`sh\ncurl ${needsKey() ? '--header "Authorization: Bearer $KEY" ' : ''}'${root}${path}?size=5'\n\`\`\``;

  /** The beginning of a client's README, with the first point of its list where a key is needed: it says where that goes. */
  async function beginningOf(client) {
    const readme = await (await fetch(`clients/${client}/README.md`)).text();
    const [program, key] = readme.slice(readme.indexOf('```')).split('\n- ');
    return (needsKey() ? `${program}\n${key}` : program).replaceAll('http://localhost:3000', root);
  }

  /** `access` is what the document says about keys and the limit, `path` that of the operation. */
  return function GetStarted({ access, path, Markdown }) {
    const [{ language, source }, show] = useState({ language: 'curl', source: curl(path) });
    const choose = async (chosen) =>
      show({ language: chosen, source: chosen === 'curl' ? curl(path) : await beginningOf(chosen.toLowerCase()) });
    return h(
      'section',
      { className: 'start info wrapper', 'aria-labelledby': 'start-title' },
      h('h2', { id: 'start-title' }, 'Get started'),
      h(Markdown, { source: access }),
      h(
        'div',
        { className: 'buttons', role: 'group', 'aria-label': 'Language' },
        LANGUAGES.map((each) =>
          h(
            'button',
            { key: each, type: 'button', 'aria-pressed': each === language, onClick: () => choose(each) },
            each,
          ),
        ),
      ),
      h(Markdown, { source }),
      h(
        'nav',
        { className: 'buttons', 'aria-label': 'Further reading' },
        Object.entries(FURTHER).map(([name, href]) => h('a', { key: name, href }, name)),
      ),
    );
  };
};
