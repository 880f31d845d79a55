// Pictures in JupyterLab get the alternative text of their output's metadata,
// {"image/png": {"alt": "..."}}, as nbconvert gives it to them. JupyterLab 4 itself drops it.
//
// An extension as JupyterLab loads it, without a build: `init` is called with the modules that
// JupyterLab shares, then `get` for the plugin. `yaie/course/lab.py` says where it lies.
"use strict";

const PNG = "image/png";
let shared;

function describe(renderer) {
  const render = renderer.renderModel.bind(renderer);
  renderer.renderModel = async (model) => {
    await render(model);
    const alt = model.metadata[PNG]?.alt;
    const image = renderer.node.querySelector("img");
    if (alt && image) image.alt = alt;
  };
  return renderer;
}

async function plugin() {
  const [version] = Object.values(shared["@jupyterlab/rendermime"]);
  const { IRenderMimeRegistry } = (await version.get())();
  return {
    id: "yaie-alternative-text:plugin",
    autoStart: true,
    requires: [IRenderMimeRegistry],
    activate: (_, registry) => {
      const factory = registry.getFactory(PNG);
      const createRenderer = (options) => describe(factory.createRenderer(options));
      registry.addFactory({ ...factory, mimeTypes: [PNG], createRenderer }, registry.getRank(PNG));
    },
  };
}

(window._JUPYTERLAB ??= {})["yaie-alternative-text"] = {
  init: (modules) => { shared = modules; },
  get: async () => {
    const found = { __esModule: true, default: await plugin() };
    return () => found;
  },
};
