"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([["style_index_js"],{"../../../lab/js/lab/node_modules/css-loader/dist/cjs.js!./style/index.css"(e,t,n){var o=n("../../../lab/js/lab/node_modules/css-loader/dist/runtime/noSourceMaps.js"),a=n.n(o),r=n("../../../lab/js/lab/node_modules/css-loader/dist/runtime/api.js"),s=(n.n(r))()(a());s.push([e.id,`.agentmagic-dock {
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
`,""]),n.d(t,{},{A:s})},"../../../lab/js/lab/node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var n="",o=void 0!==t[5];return t[4]&&(n+="@supports (".concat(t[4],") {")),t[2]&&(n+="@media ".concat(t[2]," {")),o&&(n+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),n+=e(t),o&&(n+="}"),t[2]&&(n+="}"),t[4]&&(n+="}"),n}).join("")},t.i=function(e,n,o,a,r){"string"==typeof e&&(e=[[null,e,void 0]]);var s={};if(o)for(var i=0;i<this.length;i++){var l=this[i][0];null!=l&&(s[l]=!0)}for(var d=0;d<e.length;d++){var c=[].concat(e[d]);o&&s[c[0]]||(void 0!==r&&(void 0===c[5]||(c[1]="@layer".concat(c[5].length>0?" ".concat(c[5]):""," {").concat(c[1],"}")),c[5]=r),n&&(c[2]&&(c[1]="@media ".concat(c[2]," {").concat(c[1],"}")),c[2]=n),a&&(c[4]?(c[1]="@supports (".concat(c[4],") {").concat(c[1],"}"),c[4]=a):c[4]="".concat(a)),t.push(c))}},t}},"../../../lab/js/lab/node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"../../../lab/js/lab/node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function n(e){for(var n=-1,o=0;o<t.length;o++)if(t[o].identifier===e){n=o;break}return n}function o(e,o){for(var a={},r=[],s=0;s<e.length;s++){var i=e[s],l=o.base?i[0]+o.base:i[0],d=a[l]||0,c="".concat(l," ").concat(d);a[l]=d+1;var u=n(c),p={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==u)t[u].references++,t[u].updater(p);else{var m=function(e,t){var n=t.domAPI(t);return n.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&n.update(e=t):n.remove()}}(p,o);o.byIndex=s,t.splice(s,0,{identifier:c,updater:m,references:1})}r.push(c)}return r}e.exports=function(e,a){var r=o(e=e||[],a=a||{});return function(e){e=e||[];for(var s=0;s<r.length;s++){var i=n(r[s]);t[i].references--}for(var l=o(e,a),d=0;d<r.length;d++){var c=n(r[d]);0===t[c].references&&(t[c].updater(),t.splice(c,1))}r=l}}},"../../../lab/js/lab/node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,n){var o=function(e){if(void 0===t[e]){var n=document.querySelector(e);if(window.HTMLIFrameElement&&n instanceof window.HTMLIFrameElement)try{n=n.contentDocument.head}catch(e){n=null}t[e]=n}return t[e]}(e);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(n)}},"../../../lab/js/lab/node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"../../../lab/js/lab/node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,n){e.exports=function(e){var t=n.nc;t&&e.setAttribute("nonce",t)}},"../../../lab/js/lab/node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(n){var o,a,r;o="",n.supports&&(o+="@supports (".concat(n.supports,") {")),n.media&&(o+="@media ".concat(n.media," {")),(a=void 0!==n.layer)&&(o+="@layer".concat(n.layer.length>0?" ".concat(n.layer):""," {")),o+=n.css,a&&(o+="}"),n.media&&(o+="}"),n.supports&&(o+="}"),(r=n.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(r))))," */")),e.styleTagTransform(o,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"../../../lab/js/lab/node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,t,n){var o=n("../../../lab/js/lab/node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),a=n.n(o),r=n("../../../lab/js/lab/node_modules/style-loader/dist/runtime/styleDomAPI.js"),s=n.n(r),i=n("../../../lab/js/lab/node_modules/style-loader/dist/runtime/insertBySelector.js"),l=n.n(i),d=n("../../../lab/js/lab/node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),c=n.n(d),u=n("../../../lab/js/lab/node_modules/style-loader/dist/runtime/insertStyleElement.js"),p=n.n(u),m=n("../../../lab/js/lab/node_modules/style-loader/dist/runtime/styleTagTransform.js"),b=n.n(m),g=n("../../../lab/js/lab/node_modules/css-loader/dist/cjs.js!./style/index.css"),f={};f.styleTagTransform=b(),f.setAttributes=c(),f.insert=l().bind(null,"head"),f.domAPI=s(),f.insertStyleElement=p(),a()(g.A,f),g.A&&g.A.locals&&g.A.locals}}]);