"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([["style_index_js"],{"./node_modules/css-loader/dist/cjs.js!./style/index.css"(e,t,o){var a=o("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),r=o.n(a),n=o("./node_modules/css-loader/dist/runtime/api.js"),i=(o.n(n))()(r());i.push([e.id,`.agentmagic-dock {
  container-type: size;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
}
/* JupyterLab gives panels 250 pixels at least. Notebook 7 has no such limit, and would cut the panel off. */
body:not([data-notebook]) #jp-right-stack > .agentmagic-dock {
  min-width: 320px;
}
.agentmagic-dock agentmagic-view {
  --am-height: 100cqh;
}
.agentmagic-dock-note {
  padding: 16px;
  font-size: var(--jp-ui-font-size1);
  line-height: 1.5;
}
.agentmagic-dock-note p {
  margin: 0 0 12px;
}
/* It stands where the view's own box will be. */
.agentmagic-early {
  position: absolute;
  right: 12px;
  bottom: 12px;
  left: 12px;
  z-index: 1;
}
.agentmagic-early textarea {
  box-sizing: border-box;
  width: 100%;
  padding: 8px 10px;
  border: 1px solid var(--jp-border-color1);
  border-radius: 6px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
  font: 14px/1.5 var(--jp-ui-font-family);
  field-sizing: content;
  max-height: 40cqh;
  resize: none;
}
.agentmagic-early textarea:focus {
  border-color: var(--jp-brand-color1);
  outline: 1px solid var(--jp-brand-color1);
}
.agentmagic-early ul {
  margin: 0 0 8px;
  padding: 0;
  list-style: none;
}
.agentmagic-early ul::before {
  content: 'Sent as soon as the panel is ready:';
  color: var(--jp-ui-font-color2);
  font-size: var(--jp-ui-font-size0);
}
.agentmagic-early li {
  margin-top: 4px;
  padding: 6px 10px;
  border-radius: 6px;
  background: var(--jp-layout-color2);
  white-space: pre-wrap;
  overflow-wrap: anywhere;
}
/* What is said until the view is drawn. */
.agentmagic-dock agentmagic-view:defined:not([hidden]) + .agentmagic-dock-note {
  display: none;
}
/* What waits for the user marks the panel's icon, and its button in the notebook. */
.lm-TabBar-tab.agentmagic-waits .lm-TabBar-tabIcon,
.jp-Toolbar .agentmagic-waits {
  position: relative;
}
.lm-TabBar-tab.agentmagic-waits .lm-TabBar-tabIcon::after,
.jp-Toolbar .agentmagic-waits::after {
  content: '!';
  position: absolute;
  top: 0;
  right: 0;
  width: 12px;
  border-radius: 6px;
  background: var(--jp-warn-color0, #b23c00);
  color: var(--jp-layout-color0, #fff);
  font: 700 9px/12px sans-serif;
  text-align: center;
  pointer-events: none;
}
.agentmagic-status {
  display: flex;
  gap: 8px;
  align-items: center;
  height: 100%;
  padding: 0 8px;
  white-space: nowrap;
}
.agentmagic-status button {
  border: 1px solid var(--jp-warn-color0, #b23c00);
  border-radius: 3px;
  padding: 0 4px;
  background: none;
  color: inherit;
  font: inherit;
  font-weight: 700;
  cursor: pointer;
}
.jp-Cell-outputWrapper:has(> .agentmagic-output-bar) {
  position: relative;
}
.agentmagic-output-bar {
  position: absolute;
  top: 0;
  right: 4px;
  z-index: 2;
  display: flex;
  border: var(--jp-border-width) solid var(--jp-border-color1);
  border-radius: 4px;
  background: var(--jp-layout-color1);
  box-shadow: var(--jp-elevation-z1);
}
.agentmagic-output-bar button {
  min-height: 24px;
  padding: 0 8px;
  border: 0;
  background: none;
  color: var(--jp-ui-font-color1);
  font: 12px var(--jp-ui-font-family);
  cursor: pointer;
}
.agentmagic-output-bar button:hover {
  background: var(--jp-layout-color2);
}
.agentmagic-staged {
  margin: 4px 0 8px calc(var(--jp-cell-prompt-width, 64px) + var(--jp-cell-collapser-width, 8px));
  border: 1px dashed var(--jp-brand-color1);
  border-radius: 4px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
}
.agentmagic-staged[data-action='remove'],
.agentmagic-staged-removal > .jp-Cell-inputWrapper {
  border-color: var(--jp-error-color1);
}
.agentmagic-staged-removal > .jp-Cell-inputWrapper .jp-InputArea-editor {
  background: color-mix(in srgb, var(--jp-error-color1) 18%, var(--jp-cell-editor-background));
  text-decoration: line-through;
}
.agentmagic-staged-head,
.agentmagic-staged-bar {
  display: flex;
  flex-wrap: wrap;
  gap: 4px 8px;
  align-items: center;
  padding: 4px 8px;
  font-size: var(--jp-ui-font-size1);
}
.agentmagic-staged-why {
  flex: 1 1 10em;
}
.agentmagic-staged-buttons {
  display: flex;
  gap: 8px;
}
.agentmagic-staged-bar {
  flex-wrap: nowrap;
  min-height: 36px; /* which the layout of the notebook's head reads */
  overflow: hidden;
  border-bottom: 1px solid var(--jp-border-color2);
  background: var(--jp-layout-color2);
}
.agentmagic-staged-bar > span:first-child {
  flex: 1;
  font-weight: 600;
}
.agentmagic-staged-problem {
  margin: 0;
  padding: 0 8px 4px;
  color: var(--jp-error-color0, #b71c1c);
  font-size: var(--jp-ui-font-size1);
}
.agentmagic-staged-source {
  border-top: 1px solid var(--jp-border-color2);
  background: var(--jp-cell-editor-background);
}
.agentmagic-heard {
  position: absolute;
  width: 1px;
  height: 1px;
  overflow: hidden;
  clip-path: inset(50%);
}
`,""]),o.d(t,{},{A:i})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var o="",a=void 0!==t[5];return t[4]&&(o+="@supports (".concat(t[4],") {")),t[2]&&(o+="@media ".concat(t[2]," {")),a&&(o+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),o+=e(t),a&&(o+="}"),t[2]&&(o+="}"),t[4]&&(o+="}"),o}).join("")},t.i=function(e,o,a,r,n){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(a)for(var s=0;s<this.length;s++){var l=this[s][0];null!=l&&(i[l]=!0)}for(var d=0;d<e.length;d++){var c=[].concat(e[d]);a&&i[c[0]]||(void 0!==n&&(void 0===c[5]||(c[1]="@layer".concat(c[5].length>0?" ".concat(c[5]):""," {").concat(c[1],"}")),c[5]=n),o&&(c[2]&&(c[1]="@media ".concat(c[2]," {").concat(c[1],"}")),c[2]=o),r&&(c[4]?(c[1]="@supports (".concat(c[4],") {").concat(c[1],"}"),c[4]=r):c[4]="".concat(r)),t.push(c))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function o(e){for(var o=-1,a=0;a<t.length;a++)if(t[a].identifier===e){o=a;break}return o}function a(e,a){for(var r={},n=[],i=0;i<e.length;i++){var s=e[i],l=a.base?s[0]+a.base:s[0],d=r[l]||0,c="".concat(l," ").concat(d);r[l]=d+1;var p=o(c),u={css:s[1],media:s[2],sourceMap:s[3],supports:s[4],layer:s[5]};if(-1!==p)t[p].references++,t[p].updater(u);else{var g=function(e,t){var o=t.domAPI(t);return o.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&o.update(e=t):o.remove()}}(u,a);a.byIndex=i,t.splice(i,0,{identifier:c,updater:g,references:1})}n.push(c)}return n}e.exports=function(e,r){var n=a(e=e||[],r=r||{});return function(e){e=e||[];for(var i=0;i<n.length;i++){var s=o(n[i]);t[s].references--}for(var l=a(e,r),d=0;d<n.length;d++){var c=o(n[d]);0===t[c].references&&(t[c].updater(),t.splice(c,1))}n=l}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,o){var a=function(e){if(void 0===t[e]){var o=document.querySelector(e);if(window.HTMLIFrameElement&&o instanceof window.HTMLIFrameElement)try{o=o.contentDocument.head}catch(e){o=null}t[e]=o}return t[e]}(e);if(!a)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");a.appendChild(o)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,o){e.exports=function(e){var t=o.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(o){var a,r,n;a="",o.supports&&(a+="@supports (".concat(o.supports,") {")),o.media&&(a+="@media ".concat(o.media," {")),(r=void 0!==o.layer)&&(a+="@layer".concat(o.layer.length>0?" ".concat(o.layer):""," {")),a+=o.css,r&&(a+="}"),o.media&&(a+="}"),o.supports&&(a+="}"),(n=o.sourceMap)&&"u">typeof btoa&&(a+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(n))))," */")),e.styleTagTransform(a,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,t,o){var a=o("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),r=o.n(a),n=o("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),i=o.n(n),s=o("./node_modules/style-loader/dist/runtime/insertBySelector.js"),l=o.n(s),d=o("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),c=o.n(d),p=o("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),u=o.n(p),g=o("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),m=o.n(g),f=o("./node_modules/css-loader/dist/cjs.js!./style/index.css"),b={};b.styleTagTransform=m(),b.setAttributes=c(),b.insert=l().bind(null,"head"),b.domAPI=i(),b.insertStyleElement=u(),r()(f.A,b),f.A&&f.A.locals&&f.A.locals}}]);