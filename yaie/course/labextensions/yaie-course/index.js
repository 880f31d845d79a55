// What JupyterLab gets from the course. `yaie/course/lab.py` says where this file lies.
//
// - Pictures have the alternative text of their output's metadata, {"image/png": {"alt": "..."}},
//   as nbconvert gives it to them. JupyterLab 4 itself drops it.
// - Files in CUDA C++ have the colors of C++.
// - A notebook that was only opened is not marked as changed. JupyterLab marks it when the kernel
//   reports its `language_info`, of which `yaie/course/lab.py` keeps only the name in the file.
//
// An extension as JupyterLab loads it, without a build: `init` is called with the modules that
// JupyterLab shares, then `get` for the plugins.
"use strict";

const PNG = "image/png";
let shared;

async function token(module, name) {
  const [version] = Object.values(shared[module]);
  return (await version.get())()[name];
}

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

async function alternativeTexts() {
  return {
    id: "yaie-course:alternative-texts",
    autoStart: true,
    requires: [await token("@jupyterlab/rendermime", "IRenderMimeRegistry")],
    activate: (_, registry) => {
      const factory = registry.getFactory(PNG);
      const createRenderer = (options) => describe(factory.createRenderer(options));
      registry.addFactory({ ...factory, mimeTypes: [PNG], createRenderer }, registry.getRank(PNG));
    },
  };
}

async function cudaColors() {
  return {
    id: "yaie-course:cuda-colors",
    autoStart: true,
    requires: [await token("@jupyterlab/codemirror", "IEditorLanguageRegistry")],
    activate: (_, languages) => {
      const load = async () => (await languages.getLanguage("C++")).support;
      const extensions = ["cu", "cuh"];
      languages.addLanguage({ name: "CUDA C++", mime: "text/x-cuda", extensions, load });
    },
  };
}

async function cleanNotebooks() {
  return {
    id: "yaie-course:clean-notebooks",
    autoStart: true,
    requires: [await token("@jupyterlab/notebook", "INotebookTracker")],
    activate: (_, tracker) => tracker.widgetAdded.connect((_, { model }) => {
      model.metadataChanged.connect((_, { key }) => {
        if (key !== "language_info" || model.dirty) return;
        queueMicrotask(() => { model.dirty = false; }); // JupyterLab sets it after this signal
      });
    }),
  };
}

(window._JUPYTERLAB ??= {})["yaie-course"] = {
  init: (modules) => { shared = modules; },
  get: async () => {
    const plugins = await Promise.all([alternativeTexts(), cudaColors(), cleanNotebooks()]);
    return () => ({ __esModule: true, default: plugins });
  },
};
