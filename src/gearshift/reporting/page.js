(() => {
  const figures = JSON.parse(document.getElementById("figures").textContent);
  const style = () => getComputedStyle(document.documentElement);
  const coloured = (value, css, key = "") => {
    if (typeof value === "string") {
      return key.endsWith("color") && value.startsWith("--") ? css.getPropertyValue(value).trim() : value;
    }
    if (Array.isArray(value)) return typeof value[0] === "object" ? value.map((v) => coloured(v, css)) : value;
    if (value && typeof value === "object") {
      return Object.fromEntries(Object.entries(value).map(([k, v]) => [k, coloured(v, css, k)]));
    }
    return value;
  };
  const draw = () => {
    for (const [id, figure] of Object.entries(figures)) {
      const { data, layout } = coloured(figure, style());
      Plotly.react(id, data, layout, { responsive: true, displayModeBar: false });
    }
  };
  draw();
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", draw);
})();
