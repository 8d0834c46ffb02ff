"use strict";(self.rspackChunkagentmagic=self.rspackChunkagentmagic||[]).push([[700],{744(t,e,n){var r=n(319),a=n.n(r),o=n(392),i=(n.n(o))()(a());i.push([t.id,`.agentmagic-dock {
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
`,""]),n.d(e,{},{A:i})},392(t){t.exports=function(t){var e=[];return e.toString=function(){return this.map(function(e){var n="",r=void 0!==e[5];return e[4]&&(n+="@supports (".concat(e[4],") {")),e[2]&&(n+="@media ".concat(e[2]," {")),r&&(n+="@layer".concat(e[5].length>0?" ".concat(e[5]):""," {")),n+=t(e),r&&(n+="}"),e[2]&&(n+="}"),e[4]&&(n+="}"),n}).join("")},e.i=function(t,n,r,a,o){"string"==typeof t&&(t=[[null,t,void 0]]);var i={};if(r)for(var c=0;c<this.length;c++){var s=this[c][0];null!=s&&(i[s]=!0)}for(var p=0;p<t.length;p++){var u=[].concat(t[p]);r&&i[u[0]]||(void 0!==o&&(void 0===u[5]||(u[1]="@layer".concat(u[5].length>0?" ".concat(u[5]):""," {").concat(u[1],"}")),u[5]=o),n&&(u[2]&&(u[1]="@media ".concat(u[2]," {").concat(u[1],"}")),u[2]=n),a&&(u[4]?(u[1]="@supports (".concat(u[4],") {").concat(u[1],"}"),u[4]=a):u[4]="".concat(a)),e.push(u))}},e}},319(t){t.exports=function(t){return t[1]}},446(t){var e=[];function n(t){for(var n=-1,r=0;r<e.length;r++)if(e[r].identifier===t){n=r;break}return n}function r(t,r){for(var a={},o=[],i=0;i<t.length;i++){var c=t[i],s=r.base?c[0]+r.base:c[0],p=a[s]||0,u="".concat(s," ").concat(p);a[s]=p+1;var d=n(u),l={css:c[1],media:c[2],sourceMap:c[3],supports:c[4],layer:c[5]};if(-1!==d)e[d].references++,e[d].updater(l);else{var f=function(t,e){var n=e.domAPI(e);return n.update(t),function(e){e?(e.css!==t.css||e.media!==t.media||e.sourceMap!==t.sourceMap||e.supports!==t.supports||e.layer!==t.layer)&&n.update(t=e):n.remove()}}(l,r);r.byIndex=i,e.splice(i,0,{identifier:u,updater:f,references:1})}o.push(u)}return o}t.exports=function(t,a){var o=r(t=t||[],a=a||{});return function(t){t=t||[];for(var i=0;i<o.length;i++){var c=n(o[i]);e[c].references--}for(var s=r(t,a),p=0;p<o.length;p++){var u=n(o[p]);0===e[u].references&&(e[u].updater(),e.splice(u,1))}o=s}}},325(t){var e={};t.exports=function(t,n){var r=function(t){if(void 0===e[t]){var n=document.querySelector(t);if(window.HTMLIFrameElement&&n instanceof window.HTMLIFrameElement)try{n=n.contentDocument.head}catch(t){n=null}e[t]=n}return e[t]}(t);if(!r)throw Error("Couldn't find a style target. This probably means that the value for the 'insert' parameter is invalid.");r.appendChild(n)}},90(t){t.exports=function(t){var e=document.createElement("style");return t.setAttributes(e,t.attributes),t.insert(e,t.options),e}},678(t,e,n){t.exports=function(t){var e=n.nc;e&&t.setAttribute("nonce",e)}},807(t){t.exports=function(t){if("u"<typeof document)return{update:function(){},remove:function(){}};var e=t.insertStyleElement(t);return{update:function(n){var r,a,o;r="",n.supports&&(r+="@supports (".concat(n.supports,") {")),n.media&&(r+="@media ".concat(n.media," {")),(a=void 0!==n.layer)&&(r+="@layer".concat(n.layer.length>0?" ".concat(n.layer):""," {")),r+=n.css,a&&(r+="}"),n.media&&(r+="}"),n.supports&&(r+="}"),(o=n.sourceMap)&&"u">typeof btoa&&(r+="\n/*# sourceMappingURL=data:application/json;base64,".concat(btoa(unescape(encodeURIComponent(JSON.stringify(o))))," */")),t.styleTagTransform(r,e,t.options)},remove:function(){var t;null===(t=e).parentNode||t.parentNode.removeChild(t)}}}},391(t){t.exports=function(t,e){if(e.styleSheet)e.styleSheet.cssText=t;else{for(;e.firstChild;)e.removeChild(e.firstChild);e.appendChild(document.createTextNode(t))}}},959(t,e,n){var r=n(446),a=n.n(r),o=n(807),i=n.n(o),c=n(325),s=n.n(c),p=n(678),u=n.n(p),d=n(90),l=n.n(d),f=n(391),g=n.n(f),h=n(744),v={};v.styleTagTransform=g(),v.setAttributes=u(),v.insert=s().bind(null,"head"),v.domAPI=i(),v.insertStyleElement=l(),a()(h.A,v),h.A&&h.A.locals&&h.A.locals}}]);