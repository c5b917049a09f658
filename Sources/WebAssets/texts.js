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

// Characters that override the direction of others, end an isolation, or break a line. A page shows none of them within names.
const directions = /[\u2028-\u202e\u2066-\u2069]/g;
const rightToLeft = /[\p{Script=Arabic}\p{Script=Hebrew}\p{Script=Syriac}\p{Script=Thaana}\p{Script=Nko}\p{Script=Adlam}\u200f]/u;

// Returns a name as people may see it: without characters that change the direction of what is around it.
function plain(name) {
  return String(name).replace(directions, "");
}

// Returns a name for use within a sentence, whose order it does not change. Adds nothing to most names, so that a person can copy
// the text.
function isolated(name) {
  const shown = plain(name);
  return words("direction") === "rtl" || rightToLeft.test(shown) ? "\u2068" + shown + "\u2069" : shown;
}

// Returns a text. Replaces each `{name}` with a value, isolated. A text with plural forms is selected by the value `count`.
function words(key, values = {}) {
  const locale = chosenLocale();
  let found = textsByLanguage[languageOf(locale)][key] ?? textsByLanguage.en[key];
  if (typeof found === "object") found = found[new Intl.PluralRules(locale).select(values.count)] ?? found.other;
  return found.replace(/\{(\w+)\}/g, (_, name) => {
    const value = values[name];
    return typeof value === "number" ? new Intl.NumberFormat(locale).format(value) : isolated(value);
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
