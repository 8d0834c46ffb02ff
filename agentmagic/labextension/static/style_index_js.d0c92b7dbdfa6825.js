"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([["style_index_js"],{"./node_modules/css-loader/dist/cjs.js!./style/index.css"(e,t,n){var o=n("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),r=n.n(o),a=n("./node_modules/css-loader/dist/runtime/api.js"),s=(n.n(a))()(r());s.push([e.id,`.agentmagic-dock {
  container-type: size;
  min-width: 320px;
  background: var(--jp-layout-color1);
  color: var(--jp-ui-font-color1);
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
/* What is said until the view is drawn. */
.agentmagic-dock agentmagic-view:defined:not([hidden]) + .agentmagic-dock-note {
  display: none;
}
/* What waits for the user marks the panel's icon, and its button in the notebook. */
.agentmagic-waits {
  position: relative;
}
.agentmagic-waits::after {
  content: '!';
  position: absolute;
  top: 2px;
  right: 2px;
  width: 12px;
  border-radius: 6px;
  background: var(--jp-warn-color0, #b23c00);
  color: #fff;
  font: 700 9px/12px sans-serif;
  text-align: center;
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
  border: 0;
  padding: 0 4px;
  background: none;
  color: var(--jp-warn-color0, #b23c00);
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
`,""]),n.d(t,{},{A:s})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var n="",o=void 0!==t[5];return t[4]&&(n+="@supports (".concat(t[4],") {")),t[2]&&(n+="@media ".concat(t[2]," {")),o&&(n+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),n+=e(t),o&&(n+="}"),t[2]&&(n+="}"),t[4]&&(n+="}"),n}).join("")},t.i=function(e,n,o,r,a){"string"==typeof e&&(e=[[null,e,void 0]]);var s={};if(o)for(var i=0;i<this.length;i++){var d=this[i][0];null!=d&&(s[d]=!0)}for(var c=0;c<e.length;c++){var l=[].concat(e[c]);o&&s[l[0]]||(void 0!==a&&(void 0===l[5]||(l[1]="@layer".concat(l[5].length>0?" ".concat(l[5]):""," {").concat(l[1],"}")),l[5]=a),n&&(l[2]&&(l[1]="@media ".concat(l[2]," {").concat(l[1],"}")),l[2]=n),r&&(l[4]?(l[1]="@supports (".concat(l[4],") {").concat(l[1],"}"),l[4]=r):l[4]="".concat(r)),t.push(l))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function n(e){for(var n=-1,o=0;o<t.length;o++)if(t[o].identifier===e){n=o;break}return n}function o(e,o){for(var r={},a=[],s=0;s<e.length;s++){var i=e[s],d=o.base?i[0]+o.base:i[0],c=r[d]||0,l="".concat(d," ").concat(c);r[d]=c+1;var u=n(l),p={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==u)t[u].references++,t[u].updater(p);else{var m=function(e,t){var n=t.domAPI(t);return n.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&n.update(e=t):n.remove()}}(p,o);o.byIndex=s,t.splice(s,0,{identifier:l,updater:m,references:1})}a.push(l)}return a}e.exports=function(e,r){var a=o(e=e||[],r=r||{});return function(e){e=e||[];for(var s=0;s<a.length;s++){var i=n(a[s]);t[i].references--}for(var d=o(e,r),c=0;c<a.length;c++){var l=n(a[c]);0===t[l].references&&(t[l].updater(),t.splice(l,1))}a=d}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,n){var o=function(e){if(void 0===t[e]){var n=document.querySelector(e);if(window.HTMLIFrameElement&&n instanceof window.HTMLIFrameElement)try{n=n.contentDocument.head}catch(e){n=null}t[e]=n}return t[e]}(e);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(n)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,n){e.exports=function(e){var t=n.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(n){var o,r,a;o="",n.supports&&(o+="@supports (".concat(n.supports,") {")),n.media&&(o+="@media ".concat(n.media," {")),(r=void 0!==n.layer)&&(o+="@layer".concat(n.layer.length>0?" ".concat(n.layer):""," {")),o+=n.css,r&&(o+="}"),n.media&&(o+="}"),n.supports&&(o+="}"),(a=n.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(o,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,t,n){var o=n("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),r=n.n(o),a=n("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),s=n.n(a),i=n("./node_modules/style-loader/dist/runtime/insertBySelector.js"),d=n.n(i),c=n("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),l=n.n(c),u=n("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),p=n.n(u),m=n("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),g=n.n(m),f=n("./node_modules/css-loader/dist/cjs.js!./style/index.css"),h={};h.styleTagTransform=g(),h.setAttributes=l(),h.insert=d().bind(null,"head"),h.domAPI=s(),h.insertStyleElement=p(),r()(f.A,h),f.A&&f.A.locals&&f.A.locals}}]);