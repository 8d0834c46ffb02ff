"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([["style_index_js"],{"./node_modules/css-loader/dist/cjs.js!./style/index.css"(e,t,r){var o=r("./node_modules/css-loader/dist/runtime/noSourceMaps.js"),n=r.n(o),a=r("./node_modules/css-loader/dist/runtime/api.js"),s=(r.n(a))()(n());s.push([e.id,`.agentmagic-dock {
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
  background: var(--jp-error-color3, #ffebee);
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
  flex: 1;
  min-width: 12em;
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
`,""]),r.d(t,{},{A:s})},"./node_modules/css-loader/dist/runtime/api.js"(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var r="",o=void 0!==t[5];return t[4]&&(r+="@supports (".concat(t[4],") {")),t[2]&&(r+="@media ".concat(t[2]," {")),o&&(r+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),r+=e(t),o&&(r+="}"),t[2]&&(r+="}"),t[4]&&(r+="}"),r}).join("")},t.i=function(e,r,o,n,a){"string"==typeof e&&(e=[[null,e,void 0]]);var s={};if(o)for(var i=0;i<this.length;i++){var d=this[i][0];null!=d&&(s[d]=!0)}for(var c=0;c<e.length;c++){var l=[].concat(e[c]);o&&s[l[0]]||(void 0!==a&&(void 0===l[5]||(l[1]="@layer".concat(l[5].length>0?" ".concat(l[5]):""," {").concat(l[1],"}")),l[5]=a),r&&(l[2]&&(l[1]="@media ".concat(l[2]," {").concat(l[1],"}")),l[2]=r),n&&(l[4]?(l[1]="@supports (".concat(l[4],") {").concat(l[1],"}"),l[4]=n):l[4]="".concat(n)),t.push(l))}},t}},"./node_modules/css-loader/dist/runtime/noSourceMaps.js"(e){e.exports=function(e){return e[1]}},"./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"(e){var t=[];function r(e){for(var r=-1,o=0;o<t.length;o++)if(t[o].identifier===e){r=o;break}return r}function o(e,o){for(var n={},a=[],s=0;s<e.length;s++){var i=e[s],d=o.base?i[0]+o.base:i[0],c=n[d]||0,l="".concat(d," ").concat(c);n[d]=c+1;var p=r(l),u={css:i[1],media:i[2],sourceMap:i[3],supports:i[4],layer:i[5]};if(-1!==p)t[p].references++,t[p].updater(u);else{var m=function(e,t){var r=t.domAPI(t);return r.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&r.update(e=t):r.remove()}}(u,o);o.byIndex=s,t.splice(s,0,{identifier:l,updater:m,references:1})}a.push(l)}return a}e.exports=function(e,n){var a=o(e=e||[],n=n||{});return function(e){e=e||[];for(var s=0;s<a.length;s++){var i=r(a[s]);t[i].references--}for(var d=o(e,n),c=0;c<a.length;c++){var l=r(a[c]);0===t[l].references&&(t[l].updater(),t.splice(l,1))}a=d}}},"./node_modules/style-loader/dist/runtime/insertBySelector.js"(e){var t={};e.exports=function(e,r){var o=function(e){if(void 0===t[e]){var r=document.querySelector(e);if(window.HTMLIFrameElement&&r instanceof window.HTMLIFrameElement)try{r=r.contentDocument.head}catch(e){r=null}t[e]=r}return t[e]}(e);if(!o)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");o.appendChild(r)}},"./node_modules/style-loader/dist/runtime/insertStyleElement.js"(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},"./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"(e,t,r){e.exports=function(e){var t=r.nc;t&&e.setAttribute("nonce",t)}},"./node_modules/style-loader/dist/runtime/styleDomAPI.js"(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(r){var o,n,a;o="",r.supports&&(o+="@supports (".concat(r.supports,") {")),r.media&&(o+="@media ".concat(r.media," {")),(n=void 0!==r.layer)&&(o+="@layer".concat(r.layer.length>0?" ".concat(r.layer):""," {")),o+=r.css,n&&(o+="}"),r.media&&(o+="}"),r.supports&&(o+="}"),(a=r.sourceMap)&&"u">typeof btoa&&(o+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(a))))," */")),e.styleTagTransform(o,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},"./node_modules/style-loader/dist/runtime/styleTagTransform.js"(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},"./style/index.js"(e,t,r){var o=r("./node_modules/style-loader/dist/runtime/injectStylesIntoStyleTag.js"),n=r.n(o),a=r("./node_modules/style-loader/dist/runtime/styleDomAPI.js"),s=r.n(a),i=r("./node_modules/style-loader/dist/runtime/insertBySelector.js"),d=r.n(i),c=r("./node_modules/style-loader/dist/runtime/setAttributesWithoutAttributes.js"),l=r.n(c),p=r("./node_modules/style-loader/dist/runtime/insertStyleElement.js"),u=r.n(p),m=r("./node_modules/style-loader/dist/runtime/styleTagTransform.js"),g=r.n(m),f=r("./node_modules/css-loader/dist/cjs.js!./style/index.css"),h={};h.styleTagTransform=g(),h.setAttributes=l(),h.insert=d().bind(null,"head"),h.domAPI=s(),h.insertStyleElement=u(),n()(f.A,h),f.A&&f.A.locals&&f.A.locals}}]);