/** A block with tabs, of which one is shown. */

/** Shows the panel of `block` with this name. */
export function select(block, name) {
  for (const tab of block.querySelectorAll('.tab')) tab.setAttribute('aria-pressed', tab.dataset.tab === name);
  for (const panel of block.querySelectorAll('[data-panel]')) panel.hidden = panel.dataset.panel !== name;
}

/** Returns the name of the panel that is shown. */
export function selected(block) {
  return block.querySelector('[aria-pressed="true"]').dataset.tab;
}
