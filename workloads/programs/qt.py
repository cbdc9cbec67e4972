"""A long rich text is laid out, edited and painted, without a screen."""

import sys

from PyQt5.QtGui import QImage, QPainter, QTextCursor, QTextDocument
from PyQt5.QtWidgets import QApplication

application = QApplication([sys.argv[0], "-platform", "offscreen"])
rows = "".join(
    f"<tr><td>{n}</td><td><b>item {n * 7 % 1000}</b></td><td>{n * n}</td></tr>" for n in range(400)
)
document = QTextDocument()
document.setTextWidth(800)
for turn in range(2):
    document.setHtml(
        f"<h1>{turn}</h1><table border=1>{rows}</table>" + "<p>some words of text</p>" * 800
    )
    cursor = QTextCursor(document)
    for n in range(40):
        cursor.setPosition(n * 40 % document.characterCount())
        cursor.insertText(f"inserted {n} ")
    image = QImage(800, 2000, QImage.Format_ARGB32)
    painter = QPainter(image)
    document.drawContents(painter)
    painter.end()
print(f"{document.blockCount()} paragraphs")
