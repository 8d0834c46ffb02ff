"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([[700],{646(e,t,a){var r=a(601),n=a.n(r),o=a(314),i=(a.n(o))()(n());i.push([e.id,`.agentmagic-dock {
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
.agentmagic-waits .lm-TabBar-tabIcon {
  color: var(--jp-warn-color0, #e65100);
  font-weight: 700;
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
`,""]),a.d(t,{},{A:i})},314(e){e.exports=function(e){var t=[];return t.toString=function(){return this.map(function(t){var a="",r=void 0!==t[5];return t[4]&&(a+="@supports (".concat(t[4],") {")),t[2]&&(a+="@media ".concat(t[2]," {")),r&&(a+="@layer".concat(t[5].length>0?" ".concat(t[5]):""," {")),a+=e(t),r&&(a+="}"),t[2]&&(a+="}"),t[4]&&(a+="}"),a}).join("")},t.i=function(e,a,r,n,o){"string"==typeof e&&(e=[[null,e,void 0]]);var i={};if(r)for(var c=0;c<this.length;c++){var p=this[c][0];null!=p&&(i[p]=!0)}for(var s=0;s<e.length;s++){var d=[].concat(e[s]);r&&i[d[0]]||(void 0!==o&&(void 0===d[5]||(d[1]="@layer".concat(d[5].length>0?" ".concat(d[5]):""," {").concat(d[1],"}")),d[5]=o),a&&(d[2]&&(d[1]="@media ".concat(d[2]," {").concat(d[1],"}")),d[2]=a),n&&(d[4]?(d[1]="@supports (".concat(d[4],") {").concat(d[1],"}"),d[4]=n):d[4]="".concat(n)),t.push(d))}},t}},601(e){e.exports=function(e){return e[1]}},72(e){var t=[];function a(e){for(var a=-1,r=0;r<t.length;r++)if(t[r].identifier===e){a=r;break}return a}function r(e,r){for(var n={},o=[],i=0;i<e.length;i++){var c=e[i],p=r.base?c[0]+r.base:c[0],s=n[p]||0,d="".concat(p," ").concat(s);n[p]=s+1;var l=a(d),u={css:c[1],media:c[2],sourceMap:c[3],supports:c[4],layer:c[5]};if(-1!==l)t[l].references++,t[l].updater(u);else{var g=function(e,t){var a=t.domAPI(t);return a.update(e),function(t){t?(t.css!==e.css||t.media!==e.media||t.sourceMap!==e.sourceMap||t.supports!==e.supports||t.layer!==e.layer)&&a.update(e=t):a.remove()}}(u,r);r.byIndex=i,t.splice(i,0,{identifier:d,updater:g,references:1})}o.push(d)}return o}e.exports=function(e,n){var o=r(e=e||[],n=n||{});return function(e){e=e||[];for(var i=0;i<o.length;i++){var c=a(o[i]);t[c].references--}for(var p=r(e,n),s=0;s<o.length;s++){var d=a(o[s]);0===t[d].references&&(t[d].updater(),t.splice(d,1))}o=p}}},659(e){var t={};e.exports=function(e,a){var r=function(e){if(void 0===t[e]){var a=document.querySelector(e);if(window.HTMLIFrameElement&&a instanceof window.HTMLIFrameElement)try{a=a.contentDocument.head}catch(e){a=null}t[e]=a}return t[e]}(e);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(a)}},540(e){e.exports=function(e){var t=document.createElement("style");return e.setAttributes(t,e.attributes),e.insert(t,e.options),t}},56(e,t,a){e.exports=function(e){var t=a.nc;t&&e.setAttribute("nonce",t)}},825(e){e.exports=function(e){if("u"<typeof document)return{update:function(){},remove:function(){}};var t=e.insertStyleElement(e);return{update:function(a){var r,n,o;r="",a.supports&&(r+="@supports (".concat(a.supports,") {")),a.media&&(r+="@media ".concat(a.media," {")),(n=void 0!==a.layer)&&(r+="@layer".concat(a.layer.length>0?" ".concat(a.layer):""," {")),r+=a.css,n&&(r+="}"),a.media&&(r+="}"),a.supports&&(r+="}"),(o=a.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(o))))," */")),e.styleTagTransform(r,t,e.options)},remove:function(){var e;null===(e=t).parentNode||e.parentNode.removeChild(e)}}}},113(e){e.exports=function(e,t){if(t.styleSheet)t.styleSheet.cssText=e;else{for(;t.firstChild;)t.removeChild(t.firstChild);t.appendChild(document.createTextNode(e))}}},959(e,t,a){var r=a(72),n=a.n(r),o=a(825),i=a.n(o),c=a(659),p=a.n(c),s=a(56),d=a.n(s),l=a(540),u=a.n(l),g=a(113),f=a.n(g),m=a(646),h={};h.styleTagTransform=f(),h.setAttributes=d(),h.insert=p().bind(null,"head"),h.domAPI=i(),h.insertStyleElement=u(),n()(m.A,h),m.A&&m.A.locals&&m.A.locals}}]);