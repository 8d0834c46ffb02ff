import "./index.css"
