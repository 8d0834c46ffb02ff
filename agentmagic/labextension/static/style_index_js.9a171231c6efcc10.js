"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([["style_index_js"],{"./node_modules/css-loader/dist/cjs.js!./style/index.css"(e,t,o){var n=o("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),r=o.n(n),a=o("./node_modules/css-loader/dist/runtime/api.js"),s=(o.n(a))()(r());s.push([e.id,`.agentmagic-dock {
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
`,""]),o.d(t,{},{A:s})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var o="",n=void 0!==t[5];return t[4]&&(o+="@supports (".concat(t[4],") {")),t[2]&&(o+="@media ".concat(t[2]," {")),n&&(o+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),o+=e(t),n&&(o+="}"),t[2]&&(o+="}"),t[4]&&(o+="}"),o}).join("")},t.i=function(e,o,n,r,a){"string"==typeof e&&(e=[[null,e,void 0]]);var s={};if(n)for(var i=0;i<this.length;i++){var d=this[i][0];null!=d&&(s[d]=!0)}for(var c=0;c<e.length;c++){var l=[].concat(e[c]);n&&s[l[0]]||(void 0!==a&&(void 0===l[5]||(l[1]="@layer".concat(l[5].length>0?" ".concat(l[5]):""," {").concat(l[1],"}")),l[5]=a),o&&(l[2]&&(l[1]="@media ".concat(l[2]," {").concat(l[1],"}")),l[2]=o),r&&(l[4]?(l[1]="@supports (".concat(l[4],") {").concat(l[1],"}"),l[4]=r):l[4]="".concat(r)),t.push(l))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function o(e){for(var o=-1,n=0;n<t.length;n++)if(t[n].identifier===e){o=n;break}return o}function n(e,n){for(var r={},a=[],s=0;s<e.length;s++){var i=e[s],d=n.base?i[0]+n.base:i[0],c=r[d]||0,l="".concat(d," ").concat(c);r[d]=c+1;var u=o(l),p={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==u)t[u].references++,t[u].updater(p);else{var m=function(e,t){var o=t.domAPI(t);return o.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&o.update(e=t):o.remove()}}(p,n);n.byIndex=s,t.splice(s,0,{identifier:l,updater:m,references:1})}a.push(l)}return a}e.exports=function(e,r){var a=n(e=e||[],r=r||{});return function(e){e=e||[];for(var s=0;s<a.length;s++){var i=o(a[s]);t[i].references--}for(var d=n(e,r),c=0;c<a.length;c++){var l=o(a[c]);0===t[l].references&&(t[l].updater(),t.splice(l,1))}a=d}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,o){var n=function(e){if(void 0===t[e]){var o=document.querySelector(e);if(window.HTMLIFrameElement&&o instanceof window.HTMLIFrameElement)try{o=o.contentDocument.head}catch(e){o=null}t[e]=o}return t[e]}(e);if(!n)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");n.appendChild(o)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,o){e.exports=function(e){var t=o.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(o){var n,r,a;n="",o.supports&&(n+="@supports (".concat(o.supports,") {")),o.media&&(n+="@media ".concat(o.media," {")),(r=void 0!==o.layer)&&(n+="@layer".concat(o.layer.length>0?" ".concat(o.layer):""," {")),n+=o.css,r&&(n+="}"),o.media&&(n+="}"),o.supports&&(n+="}"),(a=o.sourceMap)&&"u">typeof btoa&&(n+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(n,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,t,o){var n=o("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),r=o.n(n),a=o("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),s=o.n(a),i=o("./node_modules/style-loader/dist/runtime/insertBySelector.js"),d=o.n(i),c=o("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),l=o.n(c),u=o("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),p=o.n(u),m=o("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),g=o.n(m),f=o("./node_modules/css-loader/dist/cjs.js!./style/index.css"),h={};h.styleTagTransform=g(),h.setAttributes=l(),h.insert=d().bind(null,"head"),h.domAPI=s(),h.insertStyleElement=p(),r()(f.A,h),f.A&&f.A.locals&&f.A.locals}}]);