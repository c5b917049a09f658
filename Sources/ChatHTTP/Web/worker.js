"use strict";
// Caches the page for when there is no connection. Messages are never cached here.

const version = "{{version}}";
const shell = ["/", "/base.css", "/base.js", "/chat.css", "/qr.js", "/chat.js", "/icon.svg", "/icon-192.png", "/manifest.webmanifest"];

addEventListener("install", (event) => {
  event.waitUntil(caches.open(version).then((cache) => cache.addAll(shell)).then(() => skipWaiting()));
});

addEventListener("activate", (event) => {
  event.waitUntil(
    caches.keys().then((names) => Promise.all(names.filter((name) => name !== version).map((name) => caches.delete(name))))
      .then(() => clients.claim()));
});

addEventListener("fetch", (event) => {
  const address = new URL(event.request.url);
  if (event.request.method !== "GET" || address.origin !== location.origin || !shell.includes(address.pathname)) return;
  // From the network; from the cache when that fails.
  event.respondWith(
    fetch(event.request).then((response) => {
      if (response.ok) {
        const copy = response.clone();
        event.waitUntil(caches.open(version).then((cache) => cache.put(address.pathname, copy)));
      }
      return response;
    }).catch(() => caches.match(address.pathname).then((kept) => kept ?? Response.error())));
});
