(() => {
  const pointed = JSON.parse(document.getElementById("figures").textContent);
  const made = (kind, parent) => {
    const one = document.createElement("div");
    one.className = kind;
    parent.append(one);
    return one;
  };
  for (const area of document.querySelectorAll(".area")) {
    const series = pointed[area.dataset.panel] || [];
    if (!series.length) continue;
    let tip, spot;
    const leave = () => { tip?.remove(); spot?.remove(); tip = spot = undefined; };
    area.addEventListener("pointerleave", leave);
    area.addEventListener("pointermove", (event) => {
      const box = area.getBoundingClientRect();
      const [x, y] = [event.clientX - box.left, event.clientY - box.top];
      let best, least = 60 ** 2;
      for (const one of series) {
        for (let n = 0; n < one.x.length; n += 1) {
          const far = (one.x[n] * box.width - x) ** 2 + (one.y[n] * box.height - y) ** 2;
          if (far < least) [best, least] = [{ one, n }, far];
        }
      }
      if (!best) return leave();
      const { one, n } = best;
      spot ??= made("spot", area);
      tip ??= made("tip", area);
      spot.style.left = `${100 * one.x[n]}%`;
      spot.style.top = `${100 * one.y[n]}%`;
      tip.replaceChildren();
      const name = document.createElement("b");
      name.textContent = one.name;
      tip.append(name, one.text[n]);
      const left = one.x[n] * box.width;
      tip.style.left = `${Math.max(0, Math.min(left + 12, box.width - tip.offsetWidth))}px`;
      const above = one.y[n] * box.height - tip.offsetHeight - 12;
      tip.style.top = `${above >= -30 ? above : one.y[n] * box.height + 14}px`;
    });
  }
  addEventListener("beforeprint", () => {
    for (const one of document.querySelectorAll("details")) one.open = true;
  });
})();
