// How the search ranks what it finds: a how-to page before others, a name of Python before pages that only mention it.
var Scorer = {
  score: ([docname, , , , score]) => score + (docname.startsWith("how-to/") ? 8 : 0),
  objNameMatch: 14,
  objPartialMatch: 6,
  objPrio: { 0: 0, 1: 0, 2: -5 },
  objPrioDefault: 0,
  title: 15,
  partialTitle: 7,
  term: 5,
  partialTerm: 2,
};
