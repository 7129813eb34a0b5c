(()=>{const box=document.currentScript.parentElement,data=JSON.parse(box.querySelector('script[type]').textContent),
pick=box.querySelector('select'),canvas=box.querySelector('canvas'),range=box.querySelector('.range'),
at=box.querySelector('.at'),color=t=>{const s=[[68,1,84],[59,82,139],[33,145,140],[94,201,98],[253,231,37]],
x=Math.min(3.999,Math.max(0,t*4)),i=Math.floor(x),f=x-i;return s[i].map((a,k)=>a+(s[i+1][k]-a)*f)};
for(const [k,c] of Object.entries(data.columns)){const o=document.createElement('option');o.value=k;
o.textContent=c.title;pick.append(o)}
const draw=()=>{const c=data.columns[pick.value];if(!c)return;const rows=c.values,n=data.steps.length,h=Math.max(1,
Math.floor(360/rows.length));canvas.width=n;canvas.height=rows.length;canvas.style.height=h*rows.length+'px';
const f=x=>c.log?Math.log10(x):x,all=rows.flat().filter(x=>x!==null&&(!c.log||x>0)).map(f),lo=all.reduce((a,b)=>
Math.min(a,b),Infinity),hi=all.reduce((a,b)=>Math.max(a,b),-Infinity),g=canvas.getContext('2d'),
im=g.createImageData(n,rows.length);rows.forEach((r,i)=>r.forEach((x,j)=>{const p=4*(i*n+j);if(x===null)return;
const v=c.log&&x<=0?[0,0,0]:color(hi>lo?(f(x)-lo)/(hi-lo):.5);im.data.set([...v,255],p)}));g.putImageData(im,0,0);
const u=x=>c.log?(10**x).toPrecision(2):x.toPrecision(2);range.textContent=all.length?
`${u(lo)} (dark) to ${u(hi)} (bright); layers down, steps ${data.steps[0]} to ${data.steps[n-1]} across`:''};
canvas.onmousemove=e=>{const b=canvas.getBoundingClientRect(),c=data.columns[pick.value],i=Math.floor((e.clientY-b.top)/
b.height*c.values.length),j=Math.floor((e.clientX-b.left)/b.width*data.steps.length),r=c.values[i];if(r)at.textContent=
`layer ${data.layers[i]}, step ${data.steps[j]}: ${r[j]}`};
try{const k=sessionStorage.getItem('watch');if(k&&data.columns[k])pick.value=k}catch{}
pick.onchange=()=>{try{sessionStorage.setItem('watch',pick.value)}catch{};draw()};draw()})();
