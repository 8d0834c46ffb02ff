// The last check before untrusted content enters the page: the HTML of Markdown and formulas that DOMPurify allows.
import createDOMPurify from "dompurify"

const TAGS = "a b blockquote br code del div em h1 h2 h3 h4 h5 h6 hr i img li ol p pre s span strong table tbody td th thead tr ul"
const MATHS =
  "math menclose merror mfrac mi mmultiscripts mn mo mover mpadded mphantom mprescripts mroot mrow ms mspace msqrt mstyle msub msubsup msup mtable mtd mtext mtr munder munderover none semantics"
const MATHS_ATTRIBUTES =
  "accent accentunder class columnalign columnlines columnspacing columnspan depth display displaystyle fence form height largeop linethickness lspace lquote mathbackground mathcolor mathsize mathvariant maxsize minsize movablelimits notation rowalign rowlines rowspacing rowspan rquote rspace scriptlevel separator stretchy style symmetric voffset width"
/** Further tags for tables and other Python values. */
const RICH = "caption dd details dl dt kbd mark small sub summary sup tfoot u"
const LINK = /^(https?:\/\/|mailto:)/i
const IMAGE = /^data:image\/(png|jpeg|gif|webp);base64,[A-Za-z0-9+/=]*$/
const CLASS = /^(am-[a-z-]+|hljs(-[a-z_]+)?|function_|class_|inherited__|constant_|language_|invoke__| )*$/
const STYLE = /^[a-z0-9 :;.%#,-]*$/i

/** Returns whether a link is allowed. @param {string} url */
export const isLink = (url) => LINK.test(url)

/** Returns whether an image is allowed: only images embedded in the text, so that nothing is loaded. @param {string} url */
export const isImage = (url) => IMAGE.test(url)

/** @type {{ html: import("dompurify").DOMPurify, rich: import("dompurify").DOMPurify, maths: import("dompurify").DOMPurify } | undefined} */
let purifiers

function make() {
  const html = createDOMPurify(window)
  html.setConfig({
    ALLOWED_TAGS: TAGS.split(" "),
    ALLOWED_ATTR: ["href", "src", "alt", "title", "class", "start"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  })
  html.addHook("afterSanitizeAttributes", check)
  const rich = createDOMPurify(window)
  rich.setConfig({
    ALLOWED_TAGS: `${TAGS} ${RICH}`.split(" "),
    ALLOWED_ATTR: ["href", "src", "alt", "start", "colspan", "rowspan"],
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  })
  rich.addHook("afterSanitizeAttributes", check)
  const maths = createDOMPurify(window)
  maths.setConfig({
    ALLOWED_TAGS: MATHS.split(" "),
    ALLOWED_ATTR: MATHS_ATTRIBUTES.split(" "),
    ALLOW_DATA_ATTR: false,
    ALLOW_ARIA_ATTR: false,
    RETURN_DOM_FRAGMENT: true,
  })
  maths.addHook("afterSanitizeAttributes", (element) => {
    if (!STYLE.test(element.getAttribute("style") ?? "")) element.removeAttribute("style")
  })
  return { html, rich, maths }
}

/** @param {Element} element */
function check(element) {
  if (!CLASS.test(element.getAttribute("class") ?? "")) element.removeAttribute("class")
  if (element.tagName !== "A" || !isLink(element.getAttribute("href") ?? "")) element.removeAttribute("href")
  if (element.tagName === "A") {
    element.setAttribute("target", "_blank")
    element.setAttribute("rel", "noopener noreferrer")
  }
  if (element.tagName === "IMG" && !isImage(element.getAttribute("src") ?? "")) element.remove()
  else if (element.tagName !== "IMG") element.removeAttribute("src")
}

/**
 * @param {string} html
 * @param {"html" | "rich" | "maths"} [kind]
 * @returns {DocumentFragment}
 */
export function sanitised(html, kind = "html") {
  if (!SANITISE) return document.createRange().createContextualFragment(html)
  purifiers ??= make()
  return /** @type {any} */ (purifiers[kind].sanitize(html))
}
