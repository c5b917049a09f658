"use strict";
// The texts of a page in the browser's language. Each language is a file that calls `addTexts`.

const textsByLanguage = {};

function addTexts(language, texts) {
  textsByLanguage[language] = texts;
}

// Returns the browser's first language that has texts, with its region. English if none has.
function chosenLocale() {
  return (self.navigator.languages ?? []).find((each) => languageOf(each) in textsByLanguage) ?? "en";
}

function languageOf(locale) {
  return locale.split("-")[0].toLowerCase();
}

// Returns a text. Replaces each `{name}` with a value. A text with plural forms is selected by the value `count`.
function words(key, values = {}) {
  const locale = chosenLocale();
  let found = textsByLanguage[languageOf(locale)][key] ?? textsByLanguage.en[key];
  if (typeof found === "object") found = found[new Intl.PluralRules(locale).select(values.count)] ?? found.other;
  return found.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? new Intl.NumberFormat(locale).format(value) : value;
  });
}

// Replaces the English texts of the page.
function translatePage() {
  const root = document.documentElement;
  root.lang = chosenLocale();
  root.dir = words("direction");
  for (const each of document.querySelectorAll("[data-text]")) each.textContent = words(each.dataset.text);
  for (const each of document.querySelectorAll("[data-label]")) each.setAttribute("aria-label", words(each.dataset.label));
  for (const each of document.querySelectorAll("[data-placeholder]")) each.placeholder = words(each.dataset.placeholder);
}
