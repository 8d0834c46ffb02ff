// Files that the user pastes, drops or chooses: each is sent to the kernel, which attaches it to the next message.
/** @import { Desk } from "./types.js" */
import { h, iconButton, ICONS, isFocused, once, put } from "./dom.js"

/** Largest file, in bytes. LONGEST_FILE in agentmagic/widgets/page_messages.py is the same limit, in base64. */
const LARGEST = 6_000_000
/** Matches the name that browsers give to an image from the clipboard. */
const PASTED = /^image\.(png|jpe?g|gif|webp)$/i

/** The attachments of the next message: files and outputs, each with a button that removes it. */
export class Attached {
  #list = h("ul", { class: "am-chips", "aria-label": "Attached", hidden: true })
  #picker = h("input", { type: "file", multiple: true, hidden: true, tabindex: -1 })
  /** @type {Map<string, HTMLElement>} */
  #made = new Map()
  /** @type {Map<string, string>} the addresses of images by the names of their files */
  #pictures = new Map()
  /** @type {Map<string, string>} files that are being sent to the kernel, each with its status text */
  #sending = new Map()
  #drawn = ""

  /** @param {Desk} desk @param {HTMLTextAreaElement} box @param {() => void} changed */
  constructor(desk, box, changed) {
    this.desk = desk
    this.box = box
    this.changed = changed
    this.element = this.#list
    this.button = iconButton("Attach a file", ICONS.file, () => this.#picker.click())
    this.button.append(this.#picker)
    this.#picker.addEventListener("click", (event) => event.stopPropagation())
    this.#picker.addEventListener("change", () => {
      this.#take(this.#picker.files)
      this.#picker.value = ""
      box.focus()
    })
    box.addEventListener("paste", (event) => this.#paste(event))
  }

  /** Whether some files have not been accepted by the kernel yet. */
  get isSending() {
    return this.#sending.size > 0
  }

  /** @returns {string[]} */
  get names() {
    return (this.desk.state().attached ?? []).map(([name]) => name)
  }

  /** Accepts files that are dropped on an element. @param {HTMLElement} place */
  takeDropped(place) {
    const holds = (/** @type {DragEvent} */ { dataTransfer }) => this.desk.can("file") && dataTransfer?.types.includes("Files")
    const over = (/** @type {DragEvent} */ event) => {
      if (!holds(event)) return
      event.preventDefault()
      event.stopPropagation()
      place.classList.toggle("am-dropping", event.type === "dragover")
      if (event.type !== "drop") return
      this.#take(event.dataTransfer?.files)
      this.box.focus()
    }
    for (const type of /** @type {const} */ (["dragover", "dragleave", "drop"])) place.addEventListener(type, over)
  }

  /** @param {ClipboardEvent} event */
  #paste(event) {
    const { clipboardData: data } = event
    // A table copied from a spreadsheet contains both text and an image of the table; use the text.
    if (!this.desk.can("file") || !data?.files.length || data.types.includes("text/plain")) return
    event.preventDefault()
    this.#take(data.files)
  }

  /** @param {FileList | null | undefined} files */
  #take(files) {
    this.desk.complain("")
    for (const file of files ?? []) void this.#send(file)
  }

  /** @param {File} file */
  async #send(file) {
    if (file.size > LARGEST) {
      return this.desk.complain(`${file.name} is not attached: it has ${file.size.toLocaleString("en")} bytes, and ${LARGEST.toLocaleString("en")} is the most.`)
    }
    const name = this.#free(file.name)
    this.#sending.set(name, "on its way")
    if (file.type.startsWith("image/")) this.#pictures.set(name, URL.createObjectURL(file))
    this.update()
    try {
      this.desk.act({ type: "file", name, data: await encoded(file) })
    } catch {
      this.refused() // it is a folder, or the file was moved
      this.desk.complain(`${file.name} is not attached: it cannot be read.`)
    }
  }

  /** Returns a name that no other attachment has. @param {string} name */
  #free(name) {
    const taken = new Set([...this.names, ...this.#sending.keys()])
    const [, stem = name, end = ""] = /^(.*?)(\.\w+)?$/.exec(name.replace(PASTED, "pasted image.$1")) ?? []
    for (let number = 1; ; number++) {
      const free = number > 1 ? `${stem} ${number}${end}` : stem + end
      if (!taken.has(free)) return free
    }
  }

  /** Shows the present attachments. */
  update() {
    const { attached = [] } = this.desk.state()
    for (const [name] of attached) this.#sending.delete(name)
    const all = [...attached, ...this.#sending]
    const now = JSON.stringify(all)
    if (now === this.#drawn) return
    this.#drawn = now
    this.#forget(new Set(all.map(([name]) => name)))
    this.#list.hidden = !all.length
    const [before, focused] = [this.#list.children.length, isFocused(this.#list)]
    put(this.#list, ...all.map(([name, about]) => once(this.#made, `${name}: ${about}`, () => this.#chip(name, about))))
    if (focused && !isFocused(this.#list)) this.box.focus()
    if (attached.length > before) this.desk.announce(`Attached: ${attached.map(([name]) => name).join(", ")}`)
    this.changed()
  }

  /** Called when the kernel has refused a file; its reason is shown elsewhere. */
  refused() {
    this.#sending.clear()
    this.update()
  }

  /** Frees the images that are no longer attached. @param {Set<string>} kept */
  #forget(kept) {
    for (const [name, address] of this.#pictures) {
      if (kept.has(name)) continue
      URL.revokeObjectURL(address)
      this.#pictures.delete(name)
      for (const made of this.#made.keys()) if (made.startsWith(`${name}: `)) this.#made.delete(made)
    }
  }

  /** @param {string} name @param {string} about */
  #chip(name, about) {
    const address = this.#pictures.get(name)
    const picture = address && h("img", { class: "am-preview", src: address, alt: "" })
    const remove = !this.#sending.has(name) && iconButton(`Remove ${name}`, ICONS.failed, () => this.desk.act({ type: "detach", name }))
    const words = [h("span", { class: "am-mono" }, name), h("span", { class: "am-hint" }, about)]
    return h("li", { class: "am-chip", title: `${name}: ${about}` }, picture, ...words, remove)
  }
}

/** Returns the bytes of a file in base64. @param {File} file @returns {Promise<string>} */
function encoded(file) {
  return new Promise((resolve, reject) => {
    const reader = new FileReader()
    reader.onload = () => resolve(String(reader.result).replace(/^[^,]*,?/, ""))
    reader.onerror = () => reject(reader.error)
    reader.readAsDataURL(file)
  })
}
