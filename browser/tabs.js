/** A block with tabs, of which one is shown. */

/** Shows the panel of `block` with this name. */
export function select(block, name) {
  const [top, ...panels] = block.children;
  for (const tab of top.querySelectorAll('.tab')) tab.setAttribute('aria-pressed', tab.dataset.tab === name);
  for (const panel of panels) panel.hidden = panel.dataset.panel !== name;
}

/** Returns the name of the panel that is shown. */
export function selected(block) {
  return block.querySelector('[aria-pressed="true"]').dataset.tab;
}
